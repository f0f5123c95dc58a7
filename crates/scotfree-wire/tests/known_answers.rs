//! The algorithms against answers computed elsewhere: SipHash-2-4 against its authors' vectors, HKDF
//! against RFC 5869, and our derivations against an independent computation.

use hkdf::Hkdf;
use scotfree_core::{Epoch, SessionId};
use scotfree_wire::{key_epoch, nonce_under, ClusterKey, Direction, Key, KeyEpoch, KEY_EPOCHS_MAX};
use sha2::Sha256;

/// Of the messages 0, 1, 2, ... of each length from 0 under the key 0, 1, ..., 15.
const SIPHASH: [u64; 64] = [
    0x726f_db47_dd0e_0e31,
    0x74f8_39c5_93dc_67fd,
    0x0d6c_8009_d9a9_4f5a,
    0x8567_6696_d7fb_7e2d,
    0xcf27_94e0_2771_87b7,
    0x1876_5564_cd99_a68d,
    0xcbc9_466e_58fe_e3ce,
    0xab02_00f5_8b01_d137,
    0x93f5_f579_9a93_2462,
    0x9e00_82df_0ba9_e4b0,
    0x7a5d_bbc5_94dd_b9f3,
    0xf4b3_2f46_226b_ada7,
    0x751e_8fbc_860e_e5fb,
    0x14ea_5627_c084_3d90,
    0xf723_ca90_8e7a_f2ee,
    0xa129_ca61_49be_45e5,
    0x3f2a_cc7f_57c2_9bdb,
    0x699a_e9f5_2cbe_4794,
    0x4bc1_b3f0_968d_d39c,
    0xbb6d_c91d_a779_61bd,
    0xbed6_5cf2_1aa2_ee98,
    0xd0f2_cbb0_2e3b_67c7,
    0x9353_6795_e3a3_3e88,
    0xa80c_038c_cd5c_cec8,
    0xb8ad_50c6_f649_af94,
    0xbce1_92de_8a85_b8ea,
    0x17d8_35b8_5bbb_15f3,
    0x2f2e_6163_076b_cfad,
    0xde4d_aaac_a71d_c9a5,
    0xa6a2_5066_8795_6571,
    0xad87_a353_5c49_ef28,
    0x32d8_92fa_d841_c342,
    0x7127_512f_72f2_7cce,
    0xa7f3_2346_f959_78e3,
    0x12e0_b01a_bb05_1238,
    0x15e0_34d4_0fa1_97ae,
    0x314d_ffbe_0815_a3b4,
    0x0279_90f0_2962_3981,
    0xcadc_d4e5_9ef4_0c4d,
    0x9abf_d876_6a33_735c,
    0x0e3e_a96b_5304_a7d0,
    0xad0c_42d6_fc58_5992,
    0x1873_06c8_9bc2_15a9,
    0xd4a6_0abc_f379_2b95,
    0xf935_451d_e4f2_1df2,
    0xa953_8f04_1975_5787,
    0xdb9a_cddf_f56c_a510,
    0xd06c_98cd_5c09_75eb,
    0xe612_a3cb_9ecb_a951,
    0xc766_e62c_fcad_af96,
    0xee64_435a_9752_fe72,
    0xa192_d576_b245_165a,
    0x0a87_87bf_8ecb_74b2,
    0x81b3_e73d_20b4_9b6f,
    0x7fa8_220b_a3b2_ecea,
    0x2457_31c1_3ca4_2499,
    0xb78d_bfaf_3a8d_83bd,
    0xea1a_d565_322a_1a0b,
    0x60e6_1c23_a379_5013,
    0x6606_d7e4_4628_2b93,
    0x6ca4_ecb1_5c5f_91e1,
    0x9f62_6da1_5c96_25f3,
    0xe51b_3860_8ef2_5f57,
    0x958a_324c_eb06_4572,
];

fn counting<const N: usize>(first: u8) -> [u8; N] {
    core::array::from_fn(|index| first + index as u8)
}

fn hex(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits");
    (0..digits.len()).step_by(2).map(digit).collect()
}

fn key(digits: &str) -> Key {
    Key::from_bytes(hex(digits).try_into().expect("sixteen bytes"))
}

#[test]
fn siphash_gives_the_published_answers() {
    let key = Key::from_bytes(counting(0));
    let message: [u8; 64] = counting(0);
    for (bytes, answer) in SIPHASH.into_iter().enumerate() {
        assert_eq!(key.mac(&[&message[..bytes]]), answer, "of {bytes} bytes");
    }
}

/// A packet's code skips its own field and a stamp: where the parts meet must not matter.
#[test]
fn siphash_of_parts_is_that_of_the_whole() {
    let key = Key::from_bytes(counting(0));
    let message: [u8; 63] = counting(0);
    for first in 0..63 {
        for second in first..63 {
            let parts = [&message[..first], &message[first..second], &message[second..]];
            assert_eq!(key.mac(&parts), SIPHASH[63], "cut at {first} and {second}");
        }
    }
}

/// RFC 5869, test cases 1 and 3 (no salt, no info).
#[test]
fn hkdf_gives_the_published_answers() {
    let secret = [0x0b; 22];
    let mut out = [0; 42];
    let salt: [u8; 13] = counting(0);
    let info: [u8; 10] = counting(0xf0);
    Hkdf::<Sha256>::new(Some(&salt), &secret).expand(&info, &mut out).expect("42 bytes");
    assert_eq!(
        out[..],
        hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
    );
    Hkdf::<Sha256>::new(Some(&[]), &secret).expand(&[], &mut out).expect("42 bytes");
    assert_eq!(
        out[..],
        hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8")
    );
}

#[test]
fn control_keys_are_fixed_by_the_protocol() {
    let cluster = ClusterKey::from_bytes(counting(0));
    let expected = [
        (Direction::ServerToDevice, "7e54ca9e2d49ee23f9c72ad48b49ac16"),
        (Direction::DeviceToServer, "f032378f4bfa3373167ff632529b35ea"),
        (Direction::Stamp, "0af1be270b83bd007f25b8425e7eb41e"),
        (Direction::Handshake, "44601d1683469d0efac514ea649852ea"),
    ];
    for (direction, digits) in expected {
        assert_eq!(cluster.control(direction), key(digits), "{direction:?}");
    }
}

#[test]
fn session_keys_are_fixed_by_the_protocol() {
    let cluster = ClusterKey::from_bytes(counting(0));
    let keys = cluster.session(&counting(0xa0), &counting(0xc0), SessionId(7), Epoch(3));
    assert_eq!(keys.client_to_server, key("f0b299642bee3fa038da4238dca0b992"));
    assert_eq!(keys.server_to_client, key("8aa624847d36350740de6aa1b3c6bf8b"));
    assert_eq!(keys.device_to_client, key("ad6e5a53652d1f22ded1181a93f1a9fb"));
}

#[test]
fn a_session_has_the_key_of_the_epoch_that_its_servers_nonce_names() {
    let old = ClusterKey::from_bytes([1; 32]);
    let both =
        ClusterKey::from_epochs(vec![(KeyEpoch(0), [1; 32]), (KeyEpoch(5), [2; 32])]).expect("they grow");
    let new = ClusterKey::from_epochs(vec![(KeyEpoch(5), [2; 32])]).expect("one is enough");
    let keys = |cluster: &ClusterKey, epoch| {
        let nonce = nonce_under(KeyEpoch(epoch), [9; 8]);
        assert_eq!(key_epoch(&nonce), KeyEpoch(epoch));
        cluster.session(&[3; 16], &nonce, SessionId(4), Epoch(1))
    };
    assert_eq!(keys(&both, 0), keys(&old, 0));
    assert_eq!(keys(&both, 5), keys(&new, 5));
    assert_ne!(keys(&both, 5), keys(&both, 0));
    // Of an epoch that is gone: keys that its client does not have, and everybody else derives alike.
    assert_ne!(keys(&new, 0), keys(&old, 0));
    // A nonce of a time before there were epochs.
    assert_eq!(key_epoch(&counting(0xc0)), KeyEpoch(0));
    assert_eq!((both.newest(), both.has(KeyEpoch(0)), new.has(KeyEpoch(0))), (KeyEpoch(5), true, false));
}

#[test]
fn epochs_grow_and_are_few() {
    let made = |epochs: &[u32]| {
        let secrets = epochs.iter().map(|epoch| (KeyEpoch(*epoch), [1; 32]));
        ClusterKey::from_epochs(secrets.collect()).is_some()
    };
    let too_many: Vec<u32> = (0..=KEY_EPOCHS_MAX as u32).collect();
    assert!(made(&[7]) && made(&[0, 9]) && made(&too_many[1..]));
    assert!(!made(&[]) && !made(&[1, 1]) && !made(&[2, 1]) && !made(&too_many));
}

#[test]
fn keys_are_never_printed() {
    assert_eq!(format!("{:?}", key("00112233445566778899aabbccddeeff")), "Key(..)");
    assert_eq!(format!("{:?}", ClusterKey::from_bytes([1; 32])), "ClusterKey([KeyEpoch(0)])");
    let keys = ClusterKey::from_bytes([1; 32]).session(&[2; 16], &[3; 16], SessionId(4), Epoch(5));
    assert!(!format!("{keys:?}").contains(char::is_numeric));
}
