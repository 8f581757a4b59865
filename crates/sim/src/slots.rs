//! Computes the shard of a key, independently of the core.
//!
//! Workload and checkers use this instead of the store's own router, so that a key in the wrong
//! shard is detected: Redis Cluster's CRC16 (XMODEM) mod 16384, with the shards of the founding
//! sharing the slots evenly and in order. Plain keys of the simulator have no `{hash tags}`; for
//! other keys only the tag is hashed.

use tidelock_core::types::ShardId;

/// Number of hash slots, as in Redis Cluster.
pub const SLOTS: u64 = 16384;

/// The shard of a key without hash tags, of `data_shards` founding ones.
pub fn shard_of(key: &[u8], data_shards: u64) -> ShardId {
    ShardId(1 + u64::from(slot_of(key)) * data_shards / SLOTS)
}

/// The slot of a key, of its tag alone if it holds one.
pub fn slot_of(key: &[u8]) -> u16 {
    let tagged = key.strip_prefix(b"{").and_then(|rest| rest.split(|&byte| byte == b'}').next());
    (u64::from(crc16(tagged.unwrap_or(key))) % SLOTS) as u16
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| (crc << 8) ^ CRC16_OF_BYTES[usize::from((crc >> 8) as u8 ^ byte)])
}

/// The checksum of each single byte. Without the table, checksums took 5 % of the time of a run.
const CRC16_OF_BYTES: [u16; 256] = crc16_of_bytes();

/// Bit by bit, as the polynomial is defined: short enough to verify by reading.
const fn crc16_of_bytes() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn shards_share_the_slots_in_order() {
        assert_eq!(shard_of(b"foo", 1), ShardId(1));
        // `CLUSTER KEYSLOT foo` answers 12182, in the third quarter; `somekey` 11058, too;
        // `123456789` 12739, in the last.
        assert_eq!(shard_of(b"foo", 4), ShardId(3));
        assert_eq!(shard_of(b"somekey", 4), ShardId(3));
        assert_eq!(shard_of(b"123456789", 4), ShardId(4));
    }
}
