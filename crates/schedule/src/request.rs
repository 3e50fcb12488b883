//! The request of a gang: the slices that it asks for at a time.
//!
//! Problem: a gang that fetches its data into the caches anew in every slot gets more done in few
//! long slots than in many short ones. And a gang that somebody waits for is to begin soon.
//! Approach: the request of EEVDF. Its length says by when a gang has to have had it. How much the
//! gang gets depends on its weight only.
//!
//! Terms:
//! - *request*: as many slices as the class of the gang says. It begins when
//!   the one before it is used up, and is used up by every slot of the gang,
//!   also by those as a guest.
//! - *since*: the virtual time at which the request began. A gang that was eligible then is
//!   eligible until the request is used up.
//!
//! Properties: with requests of one slice, since is the virtual time itself;
//! a request that begins anew before it is used up brings no slot sooner.

/// The request of a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its length.
    slices: u32,
    /// The slices that are left of it, at least 1.
    left: u32,
    /// Virtual time that it has used.
    used: u128,
}

impl Request {
    pub fn new(slices: u32) -> Request {
        Request { slices, left: slices, used: 0 }
    }

    /// Begins anew, with the length that it has.
    pub fn renew(&mut self) {
        *self = Request::new(self.slices);
    }

    /// A slot is had that moves the virtual time by `by`.
    pub fn use_slot(&mut self, by: u128) {
        self.left -= 1;
        self.used += by;
        if self.left == 0 {
            self.renew();
        }
    }

    /// Its gang weighs something else from now on.
    pub fn reweigh(&mut self, old: u64, new: u64) {
        self.used = self.used * u128::from(old) / u128::from(new);
    }

    /// The virtual time at which it began, for a gang at `vtime`.
    pub fn since(&self, vtime: u128) -> u128 {
        vtime.saturating_sub(self.used)
    }

    pub fn slices(&self) -> u32 {
        self.slices
    }

    pub fn left(&self) -> u32 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_anew_when_it_is_used_up() {
        let mut request = Request::new(3);
        request.use_slot(10);
        request.use_slot(10);
        assert_eq!((request.left(), request.since(70)), (1, 50));
        request.use_slot(10);
        assert_eq!((request.left(), request.since(80)), (3, 80));
    }

    #[test]
    fn of_one_slice_it_begins_with_every_slot() {
        let mut request = Request::new(1);
        request.use_slot(10);
        assert_eq!(request, Request::new(1));
    }
}
