//! Sorting in memory: keys of 4 and 8 bytes, fixed-size records, merges, packing of sorted keys, checksums.
//!
//! Everything that is sorted becomes unsigned first: [`encode`] maps integers and floats to `u32` or `u64` keys whose
//! order is theirs, [`KeyPlan`] maps the key fields of records to bytes in the order of `memcmp`. No function
//! allocates memory in proportion to its input: room comes from the caller. Results do not depend on the number of
//! threads, nor on the path that is taken.
//!
//! | module | what is there |
//! |---|---|
//! | `keys` | order-preserving maps of scalars, in place |
//! | `fields` | the same for records with several key fields |
//! | `scalars` | sort of keys |
//! | `records` | sort of records through pairs of key prefix and position |
//! | `merge` | exact cuts through sorted slices, and their merge |
//! | `pack` | delta and bit packing of sorted keys |
//! | `check` | order, order-independent sums, checksums of blocks |

pub mod check;
pub mod fields;
pub mod keys;
pub mod merge;
pub mod pack;
pub mod records;
pub mod scalars;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

mod key;
mod network;
mod parallel;
mod plain;
mod quick;
mod random;
mod split;
mod spread;
mod table;
#[cfg(test)]
mod testing;
mod vector;

pub use check::{block_checksum, is_sorted, is_sorted_records, Sums};
pub use fields::{Field, FieldError, FieldKind, KeyPlan};
pub use key::{Key, Path};
pub use keys::{decode, encode, Kind};
pub use merge::{cut, cut_records, merge, merge_or_sort, merge_records, Plan};
pub use pack::{
    bits_per_value, bits_per_value_expected, pack, pack_bound, unpack, PackError, BLOCK,
};
pub use records::{
    compare_keys, key_prefix, order_records, order_scratch_len, sort_records, Layout, Order,
};
pub use scalars::{scratch_len, sort, sort_into};
