//! Which message goes to which receive: as data.
//!
//! A receive has a tag, bits of the tag that it ignores, and perhaps a sender. Rules (libfabric's
//! and MPI's): a message goes to the receive that was posted first of those that fit; a receive
//! takes the message that came first of those that fit. Messages without a tag have tag 0, and
//! lists of their own.

use std::collections::VecDeque;

/// An endpoint that messages come from: the number of its port, and its own there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub port: u64,
    pub endpoint: u16,
}

/// Messages that a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub tag: u64,
    /// Bits of the tag that need not be equal.
    pub ignore: u64,
    /// None: of any sender.
    pub source: Option<Source>,
}

impl Wanted {
    pub fn fits(&self, tag: u64, source: Source) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.source.is_none_or(|it| it == source)
    }
}

/// Receives that wait for messages, and messages that wait for receives. Of each two, none fit.
#[derive(Debug)]
pub struct Lists<R, M> {
    posted: VecDeque<(Wanted, R)>,
    unexpected: VecDeque<(u64, Source, M)>,
}

/// The fate of a receive that has got a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Remove,
    /// It has room for more, and stays where it is.
    Keep,
}

impl<R, M> Default for Lists<R, M> {
    fn default() -> Self {
        Lists { posted: VecDeque::new(), unexpected: VecDeque::new() }
    }
}

impl<R, M> Lists<R, M> {
    /// The receive for a message that has come; `take` says what becomes of the receive.
    pub fn arrive<T>(
        &mut self,
        tag: u64,
        source: Source,
        take: impl FnOnce(&mut R) -> (T, Then),
    ) -> Option<T> {
        let at = self.posted.iter().position(|(wanted, _)| wanted.fits(tag, source))?;
        let (taken, then) = take(&mut self.posted[at].1);
        if then == Then::Remove {
            self.posted.remove(at);
        }
        Some(taken)
    }

    /// Keeps a message that no receive fits.
    pub fn keep(&mut self, tag: u64, source: Source, message: M) {
        self.unexpected.push_back((tag, source, message));
    }

    /// The first message that fits, which stays.
    pub fn peek(&self, wanted: &Wanted) -> Option<(u64, Source, &M)> {
        let found = self.unexpected.iter().find(|(tag, source, _)| wanted.fits(*tag, *source));
        found.map(|(tag, source, message)| (*tag, *source, message))
    }

    /// The first message that fits.
    pub fn take(&mut self, wanted: &Wanted) -> Option<(u64, Source, M)> {
        let fits = |(tag, source, _): &(u64, Source, M)| wanted.fits(*tag, *source);
        let at = self.unexpected.iter().position(fits)?;
        self.unexpected.remove(at)
    }

    /// Posts a receive that no message fits.
    pub fn post(&mut self, wanted: Wanted, receive: R) {
        self.posted.push_back((wanted, receive));
    }

    /// Takes the first receive back of which `is_it` holds.
    pub fn cancel(&mut self, mut is_it: impl FnMut(&Wanted, &R) -> bool) -> Option<(Wanted, R)> {
        let at = self.posted.iter().position(|(wanted, receive)| is_it(wanted, receive))?;
        self.posted.remove(at)
    }

    /// The sender that each receive waits for; none: any.
    pub fn wanted(&self) -> impl Iterator<Item = Option<Source>> + '_ {
        self.posted.iter().map(|(wanted, _)| wanted.source)
    }

    /// Senders that receives wait for.
    pub fn awaited(&self) -> impl Iterator<Item = Source> + '_ {
        self.posted.iter().filter_map(|(wanted, _)| wanted.source)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Lists, Source, Then, Wanted};

    fn source(port: u64) -> Source {
        Source { port, endpoint: 0 }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arrive { tag: u64, from: u64 },
        Post { wanted: Wanted },
        Cancel { receive: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let wanted = (0u64..4, 0u64..4, proptest::option::of((0u64..3).prop_map(source)));
        prop_oneof![
            (0u64..4, 0u64..3).prop_map(|(tag, from)| Step::Arrive { tag, from }),
            wanted.prop_map(|(tag, ignore, source)| Step::Post {
                wanted: Wanted { tag, ignore, source }
            }),
            (0usize..30).prop_map(|receive| Step::Cancel { receive }),
        ]
    }

    /// MPI's rule, word for word: all that is there is looked at in each step.
    #[derive(Default)]
    struct Naive {
        receives: Vec<(Wanted, Option<usize>, bool)>,
        messages: Vec<(u64, Source, bool)>,
    }

    impl Naive {
        fn settle(&mut self) {
            for (wanted, got, is_cancelled) in &mut self.receives {
                let first = self
                    .messages
                    .iter()
                    .position(|(tag, source, taken)| !taken && wanted.fits(*tag, *source));
                if let (None, false, Some(first)) = (&got, *is_cancelled, first) {
                    *got = Some(first);
                    self.messages[first].2 = true;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn lists_match_as_the_naive_ones(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut lists, mut naive) = (Lists::<usize, usize>::default(), Naive::default());
            let mut got: Vec<Option<usize>> = Vec::new();
            let mut messages = 0;
            for step in steps {
                match step {
                    Step::Arrive { tag, from } => {
                        let take = |receive: &mut _| (*receive, Then::Remove);
                        let it = lists.arrive(tag, source(from), take);
                        match it {
                            Some(receive) => got[receive] = Some(messages),
                            None => lists.keep(tag, source(from), messages),
                        }
                        messages += 1;
                        naive.messages.push((tag, source(from), false));
                    }
                    Step::Post { wanted } => {
                        got.push(lists.take(&wanted).map(|(_, _, message)| message));
                        if got.last() == Some(&None) {
                            lists.post(wanted, got.len() - 1);
                        }
                        naive.receives.push((wanted, None, false));
                    }
                    Step::Cancel { receive } => {
                        let was = lists.cancel(|_, it| *it == receive).is_some();
                        if let Some(of) = naive.receives.get_mut(receive) {
                            prop_assert_eq!(was, of.1.is_none() && !of.2);
                            of.2 = true;
                        }
                    }
                }
                naive.settle();
                let expected: Vec<_> = naive.receives.iter().map(|(_, got, _)| *got).collect();
                prop_assert_eq!(&got, &expected);
            }
        }
    }

    #[test]
    fn receive_with_room_is_kept() {
        let mut lists = Lists::<u32, ()>::default();
        let wanted = Wanted { tag: 0, ignore: 0, source: None };
        lists.post(wanted, 2);
        let mut arrive = || {
            lists.arrive(0, source(1), |left| {
                *left -= 1;
                (*left, if *left == 0 { Then::Remove } else { Then::Keep })
            })
        };
        assert_eq!([arrive(), arrive(), arrive()], [Some(1), Some(0), None]);
    }
}
