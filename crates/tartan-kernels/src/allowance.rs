//! Memory that a computation may take, counted as it is taken: a refusal is an error, never the end of the process.

use std::fmt;

/// Least number of bytes by which a list grows.
/// By judgement: small lists grow in one step.
const LEAST_GROWTH_BYTES: usize = 1 << 16;

/// More memory is needed than is allowed, or than the system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// What is allowed.
    pub allowed_bytes: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "counting its strings takes more than the {} MB of memory that are free; give the run more memory, \
             choose a smaller k, or leave this file out",
            self.allowed_bytes / 1_000_000
        )
    }
}

/// Bytes that are still allowed.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    allowed: u64,
    taken: u64,
}

impl Allowance {
    pub fn new(allowed: u64) -> Self {
        Self { allowed, taken: 0 }
    }

    fn exceeded(&self) -> Exceeded {
        Exceeded {
            allowed_bytes: self.allowed,
        }
    }

    /// Count bytes that are about to be used.
    pub fn take(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let taken = self.taken.saturating_add(bytes as u64);
        if taken > self.allowed {
            return Err(self.exceeded());
        }
        self.taken = taken;
        Ok(())
    }

    /// Count bytes that are no longer used.
    pub fn give(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_sub(bytes as u64);
    }

    /// Make place for `more` elements behind those of a list.
    #[inline(always)]
    pub fn grow<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), Exceeded> {
        if list.capacity() - list.len() >= more {
            return Ok(());
        }
        self.grow_slowly(list, more)
    }

    #[cold]
    fn grow_slowly<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), Exceeded> {
        let before = list.capacity();
        let step = (before / 4).max(LEAST_GROWTH_BYTES / size_of::<T>().max(1));
        let wanted = (list.len() + more).max(before + step) - list.len();
        list.try_reserve_exact(wanted)
            .map_err(|_| self.exceeded())?;
        self.take((list.capacity() - before) * size_of::<T>())
    }

    /// Empty a list and let it hold `n` elements.
    pub fn reserve<T>(&mut self, list: &mut Vec<T>, n: usize) -> Result<(), Exceeded> {
        self.take(n * size_of::<T>())?;
        list.clear();
        list.try_reserve_exact(n).map_err(|_| self.exceeded())
    }

    /// Drop a list and what it took.
    pub fn drop_list<T>(&mut self, list: &mut Vec<T>) {
        self.give(list.capacity() * size_of::<T>());
        *list = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_grow_up_to_the_allowance() {
        let mut allowance = Allowance::new(1 << 17);
        let mut list = Vec::<u64>::new();
        allowance.grow(&mut list, 10).unwrap();
        assert_eq!(list.capacity(), 1 << 13);
        list.resize(1 << 13, 0);
        allowance.grow(&mut list, 1 << 13).unwrap();
        list.resize(1 << 14, 0);
        let refused = allowance.grow(&mut list, 1);
        assert_eq!(
            refused,
            Err(Exceeded {
                allowed_bytes: 1 << 17
            })
        );
    }

    #[test]
    fn dropped_lists_free_what_they_took() {
        let mut allowance = Allowance::new(1 << 17);
        for _ in 0..5 {
            let mut list = Vec::<u8>::new();
            allowance.grow(&mut list, 1 << 17).unwrap();
            assert!(allowance.take(1).is_err());
            allowance.drop_list(&mut list);
        }
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let mut allowance = Allowance::new(u64::MAX);
        assert!(allowance
            .grow(&mut Vec::<u64>::new(), usize::MAX / 16)
            .is_err());
    }
}
