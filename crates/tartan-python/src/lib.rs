//! `tartan._native`: convert, release the GIL, call, map the error. Nothing else.

use pyo3::prelude::*;

mod comm;
mod comm_memory;
mod dapwc;
mod dapwc_search;
mod davs;
mod dense;
mod in_order;
mod keeper;
mod linkage;
mod lmmds;
mod matrix;
mod microscopy;
mod pairs;
mod phylogeny;
mod report;
mod sets;
mod smacof;
mod sort;
mod sort_kernels;
mod sort_pieces;
mod sort_rows;
mod tree;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    keeper::register(module)?;
    lmmds::register(module)?;
    comm::register(module)?;
    dense::register(module)?;
    linkage::register(module)?;
    matrix::register(module)?;
    microscopy::register(module)?;
    pairs::register(module)?;
    phylogeny::register(module)?;
    sets::register(module)?;
    davs::register(module)?;
    sort::register(module)?;
    sort_kernels::register(module)?;
    sort_pieces::register(module)?;
    sort_rows::register(module)?;
    smacof::register(module)?;
    dapwc::register(module)?;
    dapwc_search::register(module)?;
    tree::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
