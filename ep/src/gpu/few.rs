//! Lists of one element in nearly every case, which then take no allocation: those of what a stream keeps.

/// A list.
#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    /// None without a first one.
    more: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few { first: None, more: Vec::new() }
    }
}

impl<T> Few<T> {
    /// Adds an element behind the others.
    pub(crate) fn push(&mut self, element: T) {
        match self.first {
            None => self.first = Some(element),
            Some(_) => self.more.push(element),
        }
    }

    /// The elements in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_in_their_order() {
        let mut few = Few::default();
        assert!(few.iter().next().is_none());
        for (number, want) in [(3, vec![3]), (1, vec![3, 1]), (2, vec![3, 1, 2])] {
            few.push(number);
            assert_eq!(few.iter().copied().collect::<Vec<_>>(), want);
            assert_eq!(few.more.capacity() > 0, want.len() > 1, "one takes no allocation");
        }
    }
}
