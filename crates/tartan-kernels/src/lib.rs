//! The hot loops of Tartan. Pure Rust: no Python, no files, no clocks.
//!
//! Every kernel has a scalar oracle in its tests.

pub mod allowance;
pub mod best;
pub mod chisq;
pub mod composition;
pub mod dense;
mod exponential;
pub mod fasta;
pub mod linkage;
pub mod microscopy;
pub mod pairs;
pub mod product;
pub mod pwc;
pub mod spanning;
pub mod sparse;
pub mod sponge;
pub mod survey;
pub mod tree;
