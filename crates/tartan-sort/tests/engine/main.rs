//! The engine from outside, in one binary: each part is a module.

mod common;
mod disk;
mod faults;
mod records;
mod streams;
mod words;
