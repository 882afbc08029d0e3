//! `tartan._native`: convert, release the GIL, call, map the error. Nothing else.

use pyo3::prelude::*;

mod best;
mod chisq;
mod comm;
mod dense;
mod in_order;
mod linkage;
mod matrix;
mod microscopy;
mod pairs;
mod phylogeny;
mod pwc;
mod pwc_search;
mod report;
mod smacof;
mod sort;
mod sort_kernels;
mod sponge;
mod tree;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    best::register(module)?;
    chisq::register(module)?;
    comm::register(module)?;
    dense::register(module)?;
    linkage::register(module)?;
    matrix::register(module)?;
    microscopy::register(module)?;
    pairs::register(module)?;
    phylogeny::register(module)?;
    sponge::register(module)?;
    sort::register(module)?;
    sort_kernels::register(module)?;
    smacof::register(module)?;
    pwc::register(module)?;
    pwc_search::register(module)?;
    tree::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
