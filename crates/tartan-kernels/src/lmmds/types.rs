//! The objective, points and rows of a pass, and the vector instructions that its loops are compiled for.

/// Columns that are treated at a time: their dissimilarities and weights stay in the nearest cache.
/// By arithmetic: some arrays of 2 KiB each. `tartan bench chisq` holds the time.
pub const CHUNK: usize = 256;

/// Dimensions that the kernels are compiled for.
/// By judgement: maps have two or three; each costs code.
pub const MAX_DIMENSION: usize = 8;

/// What is compared with a dissimilarity: a distance `sqrt(|dx|^2 + m^2)`, or the square `|dx|^2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Modelled {
    /// `sqrt(|dx|^2 + m^2)` with the square of m.
    Distance { minimum_squared: f64 },
    /// `|dx|^2`.
    Squared,
}

/// How dissimilarities are read and weighted.
#[derive(Clone, Debug)]
pub struct Objective {
    /// What the map's side of a pair is.
    pub formula: Modelled,
    /// Power of delta in the weight: -2, -1.5, -1, 0 or 1 of `weighting` 0 to 4.
    pub weighting: u8,
    /// Factor of all weights: the squared multiplier and the power of the mean that belongs to the weighting.
    pub factor: f64,
    /// Dissimilarities below this count as this in the weights of `weighting` 0 to 2.
    pub floor: f64,
    /// Stored values are multiplied by this.
    pub scale: f64,
    /// Pairs with a dissimilarity above this are left out.
    pub cut: f64,
    /// Stands for missing pairs; NaN leaves them out.
    pub missing: f64,
    /// Limits of bins, ascending: a pair with delta >= limit k has the weight of bin k + 1.
    pub limits: Vec<f64>,
    /// Weight of each bin: one more than limits, or empty when all are 1.
    pub bin_weights: Vec<f64>,
    /// Whether the Hessian has the second derivatives of D, or is that of Gauss and Newton.
    pub second: bool,
}

impl Objective {
    /// The same pairs, all with weight 1 but for the points'.
    pub(super) fn evenly(&self) -> Self {
        Objective {
            weighting: 3,
            factor: 1.0,
            bin_weights: Vec::new(),
            ..self.clone()
        }
    }
}

/// The columns of a pass: coordinates one dimension after the other, and what each point weighs.
#[derive(Clone, Copy)]
pub struct Points<'a> {
    /// Coordinates: `columns[d * n + j]` of point j.
    pub columns: &'a [f64],
    /// Weight p of each point; zero leaves a point out.
    pub weights: &'a [f64],
}

impl<'a> Points<'a> {
    /// Number of points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    pub(super) fn dimension(&self) -> usize {
        assert!(!self.is_empty() && self.columns.len().is_multiple_of(self.len()));
        self.columns.len() / self.len()
    }

    pub(super) fn coordinates<const L: usize>(columns: &'a [f64], n: usize) -> [&'a [f64]; L] {
        std::array::from_fn(|d| &columns[d * n..(d + 1) * n])
    }
}

/// Some rows of the matrix, each with all columns.
#[derive(Clone, Copy)]
pub struct MatrixRows<'a, T> {
    /// Stored values, row after row.
    pub values: &'a [T],
    /// Index of each row, and so the column of its diagonal.
    pub items: &'a [i64],
}

/// Run `$body` with the constant `$L` set to `$dimension`.
macro_rules! with_dimension {
    ($dimension:expr, $L:ident, $body:expr) => {
        with_dimension!(@ $dimension, $L, $body, 1 2 3 4 5 6 7 8)
    };
    (@ $dimension:expr, $L:ident, $body:expr, $($value:literal)+) => {
        match $dimension {
            $($value => { const $L: usize = $value; $body })+
            other => panic!("{other} dimensions; there may be 1 to {}", $crate::lmmds::MAX_DIMENSION),
        }
    };
}

pub(crate) use with_dimension;

/// # Panics
/// When lengths disagree or a row lies beyond the matrix.
pub(super) fn check<T>(objective: &Objective, rows: &MatrixRows<'_, T>, n: usize) {
    assert!(n > 0 && rows.values.len().is_multiple_of(n));
    assert_eq!(rows.values.len(), n * rows.items.len());
    let inside = |&item: &i64| usize::try_from(item).is_ok_and(|i| i < n);
    assert!(rows.items.iter().all(inside), "rows beyond the matrix");
    let bins = objective.bin_weights.len();
    assert!(bins == 0 || bins == objective.limits.len() + 1);
}

/// The vector instructions that the loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorLevel {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl VectorLevel {
    /// The widest of this machine.
    #[cfg(target_arch = "x86_64")]
    pub fn widest() -> Self {
        use std::arch::is_x86_feature_detected as has;
        if !(has!("avx2") && has!("fma")) {
            return VectorLevel::Baseline;
        }
        let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
        if wide {
            VectorLevel::Avx512
        } else {
            VectorLevel::Avx2
        }
    }

    /// The widest of this machine.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn widest() -> Self {
        VectorLevel::Baseline
    }
}
