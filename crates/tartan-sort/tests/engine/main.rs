//! The engine from outside, in one binary: each part is a module.

mod common;
mod damage;
mod disk;
mod faults;
mod hostile;
mod records;
mod streams;
mod words;
