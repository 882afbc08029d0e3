//! Sorting in memory: keys of 4 and 8 bytes, fixed-size records, packing of sorted keys.
//!
//! Everything that is sorted becomes unsigned first: [`encode`] maps integers and floats to `u32` or `u64` keys whose
//! order is theirs, [`KeyPlan`] maps the key fields of records to bytes in the order of `memcmp`. No function
//! allocates memory in proportion to its input: the caller provides it. Results do not depend on the number of
//! threads, nor on the path that is taken.
//!
//! | module | what is there |
//! |---|---|
//! | `keys` | order-preserving maps of scalars, in place |
//! | `fields` | the same for records with several key fields |
//! | `scalars` | sort of keys |
//! | `records` | sort of records through pairs of key prefix and position |
//! | `pack` | delta and bit packing of sorted keys |
//! | `check` | order of keys, whole records |

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod check;
mod fields;
mod key;
mod keys;
mod network;
mod pack;
mod parallel;
mod plain;
mod quick;
mod random;
mod records;
mod scalars;
mod split;
mod spread;
mod table;
#[cfg(test)]
mod testing;
mod vector;

pub(crate) use fields::{FieldKind, KeyField, KeyPlan};
pub use key::{Key, Path};
pub use keys::{decode, encode, NumberKind};
pub(crate) use pack::{pack, unpack};
pub use pack::{pack_bound, pack_with, unpack_with};
pub(crate) use records::{order_records, KeyLayout, RecordOrder};
pub(crate) use scalars::sort_into;
pub use scalars::{scratch_len, sort};
pub use table::Vectorised;
