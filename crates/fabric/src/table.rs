//! Things with numbers that may go over a medium: a number that was given back names nothing.

/// Things by number; a number has a place and a turn, so that no number comes twice.
#[derive(Debug)]
pub struct Table<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    pub fn insert(&mut self, thing: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        let of = &mut self.places[place as usize];
        of.1 = Some(thing);
        u64::from(of.0) << 32 | u64::from(place)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let of = self.places.get_mut(number as u32 as usize)?;
        (u64::from(of.0) == number >> 32).then_some(of.1.as_mut()).flatten()
    }

    pub fn get(&self, number: u64) -> Option<&T> {
        let of = self.places.get(number as u32 as usize)?;
        (u64::from(of.0) == number >> 32).then_some(of.1.as_ref()).flatten()
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.get(number)?;
        let place = number as u32;
        let of = &mut self.places[place as usize];
        of.0 = of.0.wrapping_add(1);
        self.free.push(place);
        of.1.take()
    }

    pub fn things(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, thing)| thing.as_ref())
    }

    /// Numbers of the things of which it holds.
    pub fn numbers(&self, is_it: impl Fn(&T) -> bool) -> Vec<u64> {
        let numbered = self.places.iter().enumerate();
        numbered
            .filter(|(_, (_, thing))| thing.as_ref().is_some_and(&is_it))
            .map(|(place, (turn, _))| u64::from(*turn) << 32 | place as u64)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn number_that_was_given_back_names_nothing() {
        let mut table = Table::default();
        let first = table.insert('a');
        assert_eq!(table.get_mut(first), Some(&mut 'a'));
        assert_eq!((table.remove(first), table.remove(first)), (Some('a'), None));
        let second = table.insert('b');
        assert_eq!((table.get(first), table.get(second)), (None, Some(&'b')));
        assert_eq!(table.numbers(|_| true), [second]);
        assert_eq!(table.get(u64::MAX), None);
    }
}
