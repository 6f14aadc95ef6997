//! Finds where a JSON string ends.
//!
//! Most bytes of a log stand in strings, so they are looked at in blocks, as masks with a bit for each byte. What escapes
//! what is told by arithmetic on the masks: text is so full of escapes that a branch at each would cost more.

use wide::u8x16;

/// Bytes that a first look takes.
const SHORT: usize = 16;

/// Looks of this kind: keys, ids and times are no longer.
const LOOKS: usize = 3;

/// Bytes of a block.
const BLOCK: usize = 64;

/// Every second byte of a block, from its first.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Returns the place after the closing quote of the string whose opening quote stands before `from`, and whether it holds
/// escapes; `None` if it is not closed, or holds a control character or a backslash that begins no escape.
#[inline]
pub(crate) fn end(bytes: &[u8], from: usize) -> Option<(usize, bool)> {
    let mut at = from;
    for _ in 0..LOOKS {
        let rest = bytes.get(at..)?;
        let special = if let Some(next) = rest.first_chunk() {
            special(next)
        } else if let Some(last) = bytes.last_chunk() {
            special(last) >> (SHORT - rest.len())
        } else {
            break;
        };
        if special != 0 {
            let first = special.trailing_zeros() as usize;
            if rest.get(first) == Some(&b'"') {
                return Some((at + first + 1, false));
            }
            break;
        }
        at += SHORT.min(rest.len());
    }
    end_by_blocks(bytes, at)
}

/// The rest of a string that is long or holds something special.
fn end_by_blocks(bytes: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut block = Block::default();
    let mut has_escapes = false;
    loop {
        let rest = bytes.get(at..)?;
        if let Some(whole) = rest.first_chunk::<BLOCK>() {
            block.read(whole);
        } else {
            // What follows is no part of a string either way: a quote is missing, or what stands before it counts.
            let mut last = [b' '; BLOCK];
            last.get_mut(..rest.len())?.copy_from_slice(rest);
            block.read(&last);
        }
        let quotes = block.quotes & !block.escaped;
        // Every byte before the first quote; all, if there is none.
        let inside = (quotes & quotes.wrapping_neg()).wrapping_sub(1);
        if block.controls & inside != 0 || !are_escapes(rest, block.escaped & !block.usual & inside) {
            return None;
        }
        has_escapes |= block.backslashes & inside != 0;
        if quotes != 0 {
            return Some((at + quotes.trailing_zeros() as usize + 1, has_escapes));
        }
        at += BLOCK;
    }
}

/// Returns a bit for each byte that does not simply belong to the text: a quote, a backslash, a control character.
fn special(bytes: &[u8; SHORT]) -> u32 {
    let bytes = u8x16::new(*bytes);
    (is(b'"', bytes) | is(b'\\', bytes) | is_control(bytes)).to_bitmask()
}

fn is(byte: u8, bytes: u8x16) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

fn is_control(bytes: u8x16) -> u8x16 {
    bytes.min(u8x16::splat(0x1f)).simd_eq(bytes)
}

/// What the bytes of a block are: a bit for each, the lowest for the first.
#[derive(Default)]
struct Block {
    quotes: u64,
    controls: u64,
    backslashes: u64,
    /// Bytes that a backslash makes an escape with, where they are no backslashes themselves.
    escaped: u64,
    /// Bytes that stand behind nearly every backslash.
    usual: u64,
    /// Whether the first byte of the next block is escaped: 1 or 0.
    goes_on: u64,
}

impl Block {
    /// Reads the next block.
    fn read(&mut self, bytes: &[u8; BLOCK]) {
        let mut parts = [u8x16::default(); BLOCK / SHORT];
        for (part, bytes) in parts.iter_mut().zip(bytes.as_chunks::<SHORT>().0) {
            *part = u8x16::new(*bytes);
        }
        self.quotes = mask(&parts, |part| is(b'"', part));
        self.usual = self.quotes | mask(&parts, |part| is(b'n', part) | is(b't', part));
        // There are hardly ever any.
        let smallest = parts.into_iter().reduce(u8x16::min).unwrap_or_default();
        self.controls = if is_control(smallest).to_bitmask() == 0 { 0 } else { mask(&parts, is_control) };
        self.backslashes = mask(&parts, |part| is(b'\\', part));
        self.usual |= self.backslashes & self.goes_on;
        // Of a run of backslashes every second one is escaped, and what follows the run if their number is odd. An addition
        // at the first carries a bit to what follows: the number is odd where one stands at an even place, the other not.
        let backslashes = self.backslashes & !self.goes_on;
        let begins = backslashes & !(backslashes << 1);
        let after_even = backslashes.wrapping_add(begins & EVEN);
        let (after_odd, goes_on) = backslashes.overflowing_add(begins & !EVEN);
        self.escaped = (after_even & !EVEN | after_odd & EVEN) & !backslashes | self.goes_on;
        self.goes_on = u64::from(goes_on);
    }
}

/// Returns a bit for each byte of a block, as `look` says of sixteen of them.
fn mask(parts: &[u8x16; BLOCK / SHORT], look: impl Fn(u8x16) -> u8x16) -> u64 {
    let bits = parts.iter().map(|part| u64::from(look(*part).to_bitmask()));
    bits.rev().fold(0, |after, bits| after << SHORT | bits)
}

/// Returns whether the marked bytes may stand behind a backslash.
fn are_escapes(bytes: &[u8], mut marked: u64) -> bool {
    while marked != 0 {
        let is_escape = match bytes.get(marked.trailing_zeros() as usize..) {
            Some([b'b' | b'f' | b'r' | b'/', ..]) => true,
            Some([b'u', a, b, c, d, ..]) => [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()),
            _ => false,
        };
        if !is_escape {
            return false;
        }
        marked &= marked - 1;
    }
    true
}
