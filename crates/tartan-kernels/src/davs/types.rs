//! Points, centres and lists as the passes see them.

/// Centres: coordinates and weights, each of `dim` values for every centre.
#[derive(Clone, Copy)]
pub struct Centres<'a> {
    pub positions: &'a [f64],
    pub weights: &'a [f64],
    pub dim: usize,
}

/// Lists of centres of all points.
#[derive(Clone, Copy)]
pub struct CentreLists<'a> {
    /// Points of a chunk; the last may have fewer.
    pub chunk: usize,
    /// Where the list of each point starts in `entries`; one more at the end.
    pub starts: &'a [u64],
    /// Positions in the centres of the point's chunk.
    pub entries: &'a [u16],
    /// Where the centres of each chunk start in `chunk_centres`; one more at the end.
    pub chunk_starts: &'a [u64],
    /// Numbers of centres, rising within a chunk.
    pub chunk_centres: &'a [u32],
}

/// The same as [`CentreLists`], owned.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OwnedLists {
    pub chunk: usize,
    pub starts: Vec<u64>,
    pub entries: Vec<u16>,
    pub chunk_starts: Vec<u64>,
    pub chunk_centres: Vec<u32>,
}

impl OwnedLists {
    pub fn view(&self) -> CentreLists<'_> {
        CentreLists {
            chunk: self.chunk,
            starts: &self.starts,
            entries: &self.entries,
            chunk_starts: &self.chunk_starts,
            chunk_centres: &self.chunk_centres,
        }
    }
}

impl CentreLists<'_> {
    /// Say what is wrong with lists that came from outside, so that no pass reads beyond an array.
    pub fn check(&self, n_points: usize, n_centres: usize) -> Result<(), &'static str> {
        let n_chunks = n_points.div_ceil(self.chunk.max(1));
        if self.chunk == 0
            || self.starts.len() != n_points + 1
            || self.chunk_starts.len() != n_chunks + 1
        {
            return Err("the lists are not those of these points");
        }
        if !runs_over(self.starts, self.entries.len())
            || !runs_over(self.chunk_starts, self.chunk_centres.len())
        {
            return Err("the starts of the lists do not rise from 0 to their length");
        }
        if self.chunk_centres.iter().any(|&k| k as usize >= n_centres) {
            return Err("a list names a centre that is not there");
        }
        let beyond = (0..n_chunks).any(|c| {
            let known = self.centres_of(c).len();
            self.entries[self.entries_of(c, n_points)]
                .iter()
                .any(|&entry| entry as usize >= known)
        });
        if beyond {
            return Err("a list names a centre that its chunk does not have");
        }
        Ok(())
    }

    pub(super) fn centres_of(&self, chunk: usize) -> &[u32] {
        &self.chunk_centres
            [self.chunk_starts[chunk] as usize..self.chunk_starts[chunk + 1] as usize]
    }

    pub(super) fn points_of(&self, chunk: usize, n_points: usize) -> std::ops::Range<usize> {
        chunk * self.chunk..n_points.min((chunk + 1) * self.chunk)
    }

    pub(super) fn entries_of(&self, chunk: usize, n_points: usize) -> std::ops::Range<usize> {
        let points = self.points_of(chunk, n_points);
        self.starts[points.start] as usize..self.starts[points.end] as usize
    }
}

fn runs_over(starts: &[u64], length: usize) -> bool {
    starts.first() == Some(&0)
        && starts.last() == Some(&(length as u64))
        && starts.windows(2).all(|pair| pair[0] <= pair[1])
}

/// What the passes need to know besides points, lists and centres.
#[derive(Clone, Copy)]
pub struct SpongePass<'a> {
    pub temperature: f64,
    /// Masses below `exp(-cut)` of the nearest one's, but for the priors, are taken as 0; that of the sponge is kept.
    pub cut: f64,
    /// Logarithm of the prior of each centre.
    pub log_priors: &'a [f64],
    /// Logarithm of the sponge's prior and its energy.
    pub sponge: Option<(f64, f64)>,
}
