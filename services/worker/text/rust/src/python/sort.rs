// SPDX-License-Identifier: Apache-2.0
//! Python's sorted(): stable, and by `<` alone, which may fail.

use super::error::{charge, Result};

/// The places of `length` items in their order.
pub fn sorted(
    length: usize,
    mut less: impl FnMut(usize, usize) -> Result<bool>,
) -> Result<Vec<usize>> {
    let mut places: Vec<usize> = (0..length).collect();
    let mut width = 1;
    while width < length {
        charge(length)?;
        let mut merged = Vec::with_capacity(length);
        for run in places.chunks(2 * width) {
            let (left, right) = run.split_at(width.min(run.len()));
            let (mut i, mut j) = (0, 0);
            while i < left.len() && j < right.len() {
                if less(right[j], left[i])? {
                    merged.push(right[j]);
                    j += 1;
                } else {
                    merged.push(left[i]);
                    i += 1;
                }
            }
            merged.extend_from_slice(&left[i..]);
            merged.extend_from_slice(&right[j..]);
        }
        places = merged;
        width *= 2;
    }
    Ok(places)
}
