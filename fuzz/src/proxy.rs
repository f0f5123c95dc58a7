//! What a proxy reads: records of its log, and what comes from a peer or, at a peer, from a proxy.
//!
//! Invariant: whatever is read is written again as it was; nobody without the key is understood.

use scotfree_core::{SeqNum, SessionId};
use scotfree_proxy::peers::{Channel, FromKeeper, Held, Keeper, KeeperConfig, ToKeeper};
use scotfree_proxy::{LoggedUpdate, RecordReader, RecordWriter};
use scotfree_wire::ClusterKey;

/// Reads a record.
pub fn record(data: &[u8]) {
    let Ok(reader) = RecordReader::new(data) else { return };
    let Ok(updates) = reader.collect::<Result<Vec<_>, _>>() else { return };
    let mut again = RecordWriter::default();
    for update in &updates {
        again.add(update);
    }
    assert!(updates.is_empty() || again.bytes() == data, "a second form of the same record");
}

/// Records to start from.
pub fn record_seeds() -> Vec<Vec<u8>> {
    let mut writer = RecordWriter::default();
    for seq in [1, 2, 9] {
        let (session, behind) = (SessionId(seq * 7), SeqNum(seq - 1));
        writer.add(&LoggedUpdate { seq: SeqNum(seq), session, behind, payload: b"*1\r\n$4\r\nPING\r\n" });
    }
    vec![writer.bytes().to_vec()]
}

/// Reads messages of both directions, has a peer do what they say, and feeds them to streams that have another key.
pub fn peers(data: &[u8]) {
    let config = KeeperConfig { bytes_max: 1 << 12, logs_max: 2 };
    let mut keeper = Keeper::new(config);
    for message in data.split(|byte| *byte == 0xff) {
        if let Ok(message) = ToKeeper::read(message) {
            keeper.take(&[1; 16], 1, &message, &mut |said| {
                let mut bytes = Vec::new();
                said.write(&mut bytes);
                assert_eq!(FromKeeper::read(&bytes).as_ref(), Ok(said));
            });
            assert!(keeper.bytes() <= 1 << 12, "more is kept than may be");
        }
        if let Ok(said) = FromKeeper::read(message) {
            let mut again = Vec::new();
            said.write(&mut again);
            assert_eq!(again, message, "a second form of the same message");
        }
    }
    let key = ClusterKey::from_bytes([7; 32]);
    for mut channel in
        [Channel::of_keeper(key.clone(), [2; 16], [3; 8]), Channel::of_proxy(key, [1; 16], [4; 16])]
    {
        channel.receive(data);
        assert!(!matches!(channel.next_message(), Ok(Some(_))), "nobody has the key");
    }
}

/// Messages to start from, and the beginnings of streams.
pub fn peers_seeds() -> Vec<Vec<u8>> {
    let mut seed = Vec::new();
    for message in [
        ToKeeper::Begin(3),
        ToKeeper::Append(SeqNum(5), b"record"),
        ToKeeper::Trim(SeqNum(2)),
        ToKeeper::Read,
        ToKeeper::Resume(3),
        ToKeeper::Drop,
    ] {
        message.write(&mut seed);
        seed.push(0xff);
    }
    FromKeeper::State(Some(Held { epoch: 3, stored: 5, trimmed: 2 })).write(&mut seed);
    let key = ClusterKey::from_bytes([8; 32]);
    let hello = Channel::of_proxy(key.clone(), [1; 16], [4; 16]).to_send().to_vec();
    let mut keeper = Channel::of_keeper(key, [2; 16], [3; 8]);
    keeper.receive(&hello);
    let _ = keeper.next_message();
    vec![seed, hello, keeper.to_send().to_vec()]
}
