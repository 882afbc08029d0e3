//! The hot loops of Tartan. Pure Rust: no Python, no files, no clocks.
//!
//! Every kernel has a scalar oracle in its tests.

pub mod allowance;
pub mod bits;
pub mod check;
pub mod dapwc;
pub mod davs;
pub mod dense;
mod exponential;
pub mod fasta;
pub mod inflate;
pub mod keeper;
pub mod linkage;
pub mod lmmds;
mod logarithm;
pub mod microscopy;
pub mod pairs;
pub mod phylogeny;
pub mod product;
pub mod screen;
pub mod screened;
pub mod screened_bits;
pub mod sets;
pub mod shingles;
pub mod sketch;
pub mod spanning;
pub mod sparse;
pub mod sparse_rows;
pub mod tree;
