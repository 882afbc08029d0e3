//! Counting by sorting: each occurrence of a middle is one record. A part of the middles is sorted at a time, so the
//! records take a part of the memory that all of them would.

use crate::allowance::{Allowance, Exceeded};
use crate::phylogeny::vector::{Builder, Row, Vector, Word};
use crate::phylogeny::windows::{each_window, halves, record, PAIR_BITS};

/// Most bits of one pass of the sort: 2^11 write positions stay in the first cache level.
/// By arithmetic: 16 KiB of positions in a first cache of 32 KiB.
const DIGIT_BITS: u32 = 11;
/// Ranges of middles that the parts are made of.
/// By judgement: a thousand ranges cut parts to within a tenth of a per cent.
const BIN_BITS: u32 = 10;
/// Records that are always sorted at once: they take no more memory than other things do.
/// By arithmetic: 8 MiB of records.
const FEW_RECORDS: usize = 1 << 20;
/// The records are sorted in about this many parts.
/// By judgement: half of the memory for a second look at the letters. `tartan bench phylogeny` holds time and memory.
const PARTS: usize = 2;
/// Bytes that are kept for the next file.
/// By judgement: records of proteomes; pages that are given back and taken again cost more than counting. `tartan bench
/// phylogeny` holds the time.
const KEPT_BYTES: usize = 32 << 20;

/// Memory of the sort, kept between files.
#[derive(Default)]
pub struct Sorter<W> {
    records: Vec<W>,
    spare: Vec<W>,
}

impl<W: Word> Sorter<W> {
    /// Make the vector of all codes of a file; the middles have m letters.
    pub fn count(
        &mut self,
        codes: &[u8],
        m: usize,
        allowance: &mut Allowance,
    ) -> Result<Vector<W>, Exceeded> {
        let bits = 64 - (20u64.pow(m as u32) - 1).leading_zeros();
        let shift = bits.saturating_sub(BIN_BITS);
        if codes.len() <= FEW_RECORDS {
            return self.count_at_once(codes, m, bits, allowance);
        }
        let mut sizes = [0usize; 1 << BIN_BITS];
        let mut windows = [0; 3];
        each_window(codes, m, &mut windows, |middle, _, _| {
            sizes[(middle >> shift) as usize & ((1 << BIN_BITS) - 1)] += 1;
        });
        let parts = parts(&sizes, windows[2] as usize);
        let most = parts.iter().map(|part| part.n_records).max().unwrap_or(0);
        allowance.reserve(&mut self.records, most)?;
        allowance.reserve(&mut self.spare, most)?;
        let mut builder = Builder::new(windows, allowance);
        for part in &parts {
            self.collect(codes, m, shift, part);
            sort(&mut self.records, &mut self.spare, bits + PAIR_BITS);
            tally(&self.records, &mut builder)?;
        }
        let vector = builder.finish();
        if most * size_of::<W>() > KEPT_BYTES {
            (self.records, self.spare) = (Vec::new(), Vec::new());
        }
        Ok(vector)
    }

    /// The same, of all middles together: each code is looked at once.
    fn count_at_once(
        &mut self,
        codes: &[u8],
        m: usize,
        bits: u32,
        allowance: &mut Allowance,
    ) -> Result<Vector<W>, Exceeded> {
        allowance.reserve(&mut self.records, codes.len())?;
        allowance.reserve(&mut self.spare, codes.len())?;
        let mut windows = [0; 3];
        let (records, mut n) = (&mut self.records, 0);
        records.resize(codes.len(), W::default());
        each_window(codes, m, &mut windows, |middle, left, right| {
            records[n] = W::from_u64(record(middle, left, right));
            n += 1;
        });
        records.truncate(n);
        sort(&mut self.records, &mut self.spare, bits + PAIR_BITS);
        let mut builder = Builder::new(windows, allowance);
        tally(&self.records, &mut builder)?;
        Ok(builder.finish())
    }

    /// Write the records of the middles of a part.
    fn collect(&mut self, codes: &[u8], m: usize, shift: u32, part: &Part) {
        let (first, width) = (part.first << shift, (part.end - part.first) << shift);
        self.records.resize(part.n_records, W::default());
        let (out, mut n) = (&mut self.records[..], 0);
        each_window(codes, m, &mut [0; 3], |middle, left, right| {
            // The place is written always and kept only for a middle of the part: no branch on the letters.
            if let Some(place) = out.get_mut(n) {
                *place = W::from_u64(record(middle, left, right));
            }
            n += usize::from(middle.wrapping_sub(first) < width);
        });
    }
}

/// Middles that are sorted at once, in bins.
struct Part {
    first: u64,
    end: u64,
    n_records: usize,
}

/// Divide the bins into parts of nearly equal numbers of records.
fn parts(sizes: &[usize], n_records: usize) -> Vec<Part> {
    let most = FEW_RECORDS.max(n_records.div_ceil(PARTS));
    let mut parts: Vec<Part> = Vec::new();
    let (mut before, mut number) = (0, usize::MAX);
    for (bin, &size) in (0..).zip(sizes).filter(|(_, &size)| size > 0) {
        let wanted = (before + size / 2) / most;
        if wanted != number {
            number = wanted;
            parts.push(Part {
                first: bin,
                end: bin,
                n_records: 0,
            });
        }
        if let Some(part) = parts.last_mut() {
            part.n_records += size;
            part.end = bin + 1;
        }
        before += size;
    }
    parts
}

/// Turn sorted records into rows.
fn tally<W: Word>(records: &[W], builder: &mut Builder<'_, W>) -> Result<(), Exceeded> {
    let mut row = Row::default();
    let mut rest = records;
    while let Some(first) = rest.first() {
        let middle = first.to_u64() >> PAIR_BITS;
        let (group, others) = rest.split_at(count(&mut row, rest));
        rest = others;
        let runs = group.chunk_by(|a, b| a == b).map(|run| {
            let (left, right) = halves(run[0].to_u64());
            (left, right, run.len() as u64)
        });
        builder.row(middle, &row, group.len() as u64, runs)?;
        row.clear();
    }
    Ok(())
}

/// Count the neighbours of the first middle; returns its number of records. The row must be clear.
#[inline(always)]
fn count<W: Word>(row: &mut Row, records: &[W]) -> usize {
    let middle = records[0].to_u64() >> PAIR_BITS;
    let (mut left_mask, mut right_mask) = (0, 0);
    let mut size = 0;
    for record in records.iter().map(|record| record.to_u64()) {
        if record >> PAIR_BITS != middle {
            break;
        }
        let (left, right) = halves(record);
        row.lefts[left] += 1;
        row.rights[right] += 1;
        left_mask |= 1 << left;
        right_mask |= 1 << right;
        size += 1;
    }
    (row.left_mask, row.right_mask) = (left_mask, right_mask);
    size
}

/// Sort records of `bits` bits: a radix sort from the lowest digit.
fn sort<W: Word>(records: &mut Vec<W>, spare: &mut Vec<W>, bits: u32) {
    let n_passes = bits.div_ceil(DIGIT_BITS);
    let digit_bits = bits.div_ceil(n_passes);
    let mask = (1 << digit_bits) - 1;
    let digit = |record: W, pass: usize| {
        // The second mask changes nothing but tells the compiler that the places are there.
        (record.to_u64() >> (pass as u32 * digit_bits)) as usize & mask & ((1 << DIGIT_BITS) - 1)
    };
    spare.resize(records.len(), W::default());
    let mut places = vec![[0u32; 1 << DIGIT_BITS]; n_passes as usize];
    for record in &*records {
        for (pass, places) in places.iter_mut().enumerate() {
            places[digit(*record, pass)] += 1;
        }
    }
    for (pass, places) in places.iter_mut().enumerate() {
        let mut sum = 0;
        for place in places.iter_mut() {
            sum += std::mem::replace(place, sum);
        }
        let out = &mut spare[..];
        for &record in &*records {
            let place = &mut places[digit(record, pass)];
            out[*place as usize] = record;
            *place += 1;
        }
        std::mem::swap(records, spare);
    }
}
