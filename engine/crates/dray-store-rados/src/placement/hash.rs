//! Hash of a name, and the placement group of a hash (Ceph: `ceph_hash.cc`, `rados.h`).

/// Number of this hash in the OSD map (`object_hash`). It is the hash of every pool that Ceph has
/// created since 2011.
pub(super) const RJENKINS: u32 = 2;

/// Separates the namespace from the name.
const SEPARATOR: u8 = 0x1f;

const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// Returns the hash of an object's namespace and name.
pub(super) fn of_object(namespace: &str, object: &[u8]) -> u32 {
    if namespace.is_empty() {
        return rjenkins(object);
    }
    let mut key = Vec::with_capacity(namespace.len() + 1 + object.len());
    key.extend_from_slice(namespace.as_bytes());
    key.push(SEPARATOR);
    key.extend_from_slice(object);
    rjenkins(&key)
}

/// Returns the group of a hash. If the number of groups grows, a hash stays in its group or moves
/// to a new group (`ceph_stable_mod`).
pub(super) fn stable_mod(hash: u32, groups: u32) -> u32 {
    let mask = groups
        .checked_next_power_of_two()
        .unwrap_or(0)
        .wrapping_sub(1);
    match hash & mask {
        group if group < groups => group,
        _ => hash & (mask >> 1),
    }
}

/// Returns the group from which a split has created `group`; `None` for group 0.
pub(super) fn parent(group: u32) -> Option<u32> {
    group.checked_ilog2().map(|highest| group & !(1 << highest))
}

/// Mixes three words.
fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for [first, second, third] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> first);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << second);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> third);
    }
    [a, b, c]
}

/// Returns the little-endian word of at most four bytes.
fn word(bytes: &[u8]) -> u32 {
    let shifted = bytes.iter().take(4).zip([0, 8, 16, 24]);
    shifted.fold(0, |word, (byte, shift)| word | u32::from(*byte) << shift)
}

/// Returns the hash by Robert Jenkins (1997) of `key`.
fn rjenkins(key: &[u8]) -> u32 {
    let mut state = [GOLDEN_RATIO, GOLDEN_RATIO, 0];
    let blocks = key.chunks_exact(12);
    let rest = blocks.remainder();
    for block in blocks {
        let [a, b, c] = state;
        let (first, later) = block.split_at(4);
        let (second, third) = later.split_at(4);
        state = mix([
            a.wrapping_add(word(first)),
            b.wrapping_add(word(second)),
            c.wrapping_add(word(third)),
        ]);
    }
    let part = |from: usize| rest.get(from..).unwrap_or_default();
    let [a, b, c] = state;
    // The lowest byte of the third word belongs to the length.
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let [_, _, hash] = mix([
        a.wrapping_add(word(part(0))),
        b.wrapping_add(word(part(4))),
        c.wrapping_add(length).wrapping_add(word(part(8)) << 8),
    ]);
    hash
}
