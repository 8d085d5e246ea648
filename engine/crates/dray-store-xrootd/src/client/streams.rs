//! Number of streams of a connection.

/// Maximum number of streams of a session that a server accepts (`kXR_bind` in the XRootD
/// protocol).
const MOST: u32 = 16;

/// Returns the number of streams that a channel needs for `data` data streams. With more than one
/// data stream, the first stream transports no data.
pub(super) fn of_channel(data: u32) -> i32 {
    let streams = match data {
        0 | 1 => 1,
        more => more.saturating_add(1).min(MOST),
    };
    i32::try_from(streams).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::of_channel;

    #[test]
    fn questions_have_a_stream_of_their_own_beside_those_of_data() {
        assert_eq!([0, 1, 2, 4, 15, 64].map(of_channel), [1, 1, 3, 5, 16, 16]);
    }
}
