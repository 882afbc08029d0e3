//! Streams of reads and writes at every alignment, by every method, direct and buffered.

use std::sync::Arc;

use crate::common::*;
use tartan_sort::copy::copy;
use tartan_sort::disk::{DataFile, Direct, IoMethod, ReadStream, RingPlan, WriteStream};
use tartan_sort::error::ErrorKind;

const METHODS: [IoMethod; 2] = [IoMethod::Auto, IoMethod::Threads];
const DIRECT: [Direct; 2] = [Direct::Auto, Direct::Never];

fn ring(method: IoMethod) -> RingPlan {
    RingPlan {
        bytes: 16 << 10,
        depth: 3,
        method,
    }
}

#[test]
fn ranges_come_in_the_order_asked_for() {
    let folder = Folder::new();
    let bytes = bytes_of(&noise(20_001, 1));
    std::fs::write(folder.file("data"), &bytes).unwrap();
    for (method, direct) in METHODS.into_iter().zip(DIRECT) {
        let file = Arc::new(DataFile::open(&folder.file("data"), direct).unwrap());
        let mut stream = ReadStream::new(ring(method), ErrorKind::Read).unwrap();
        let ranges = [
            (0, 1),
            (4095, 2),
            (4096, 8192),
            (100_001, 0),
            (77, 8000),
            (160_007, 1),
            (159_000, 1008),
        ];
        let mut asked = ranges.iter();
        for &(offset, length) in &ranges {
            while stream.can_take() {
                let Some(&(offset, length)) = asked.next() else {
                    break;
                };
                stream.ask(&file, offset as u64, length).unwrap();
            }
            assert!(stream.front().unwrap() == &bytes[offset..offset + length]);
            stream.release();
        }
        assert!(stream.is_empty());
        stream.ask(&file, 160_000, 9).unwrap();
        let failure = failure(stream.front().map(<[u8]>::len));
        assert_eq!(
            (failure.kind, failure.offset),
            (ErrorKind::Read, Some(160_008))
        );
    }
}

#[test]
fn what_is_appended_is_in_the_file_and_no_more() {
    for (method, direct) in METHODS.into_iter().zip(DIRECT) {
        let (folder, mut stream) = (Folder::new(), WriteStream::new(ring(method)).unwrap());
        for offset in [0, 1, 4096, 5000] {
            for length in [0, 1, 4095, 4096, 16_384, 16_385, 200_000] {
                let before = vec![5; offset as usize];
                std::fs::write(
                    folder.file("data"),
                    [before.as_slice(), &vec![6; 300_000]].concat(),
                )
                .unwrap();
                let file = DataFile::create(&folder.file("data"), direct).unwrap();
                stream.begin(Arc::new(file), offset).unwrap();
                let bytes = bytes_of(&noise(25_000, length as u64));
                bytes[..length]
                    .chunks(7001)
                    .for_each(|piece| stream.append(piece).unwrap());
                assert_eq!(stream.position(), offset + length as u64);
                stream.finish().unwrap();
                let written = std::fs::read(folder.file("data")).unwrap();
                assert!(
                    written == [&before, &bytes[..length]].concat(),
                    "{length} bytes at {offset}"
                );
            }
        }
    }
}

/// A file of the user has the mode that a shell's would have; one of the sort is read by nobody else.
#[test]
fn only_files_of_the_sort_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let mode = |name: &str| {
        let facts = std::fs::metadata(folder.file(name)).unwrap();
        facts.permissions().mode() & 0o777
    };
    std::fs::write(folder.file("plain"), []).unwrap();
    for direct in DIRECT {
        let name = |kind: &str| format!("{kind} {direct:?}");
        DataFile::create(&folder.file(&name("user")), direct).unwrap();
        DataFile::create_private(&folder.file(&name("sort")), direct).unwrap();
        assert_eq!(mode(&name("user")), mode("plain"));
        assert_eq!(mode(&name("sort")), 0o600);
    }
}

#[test]
fn a_copy_is_equal() {
    let folder = Folder::new();
    let bytes = bytes_of(&noise(50_001, 2));
    std::fs::write(folder.file("data"), &bytes).unwrap();
    for (method, direct) in METHODS.into_iter().zip(DIRECT) {
        let copied = copy(
            &folder.file("data"),
            &folder.file("copy"),
            ring(method),
            direct,
        );
        assert_eq!(copied.unwrap(), bytes.len() as u64);
        assert!(std::fs::read(folder.file("copy")).unwrap() == bytes);
    }
}

#[test]
fn direct_files_go_on_buffered_where_that_is_allowed() {
    let folder = Folder::new();
    std::fs::write(folder.file("data"), [1; 5000]).unwrap();
    let mut bytes = [0; 10];
    let file = DataFile::open(&folder.file("data"), Direct::Auto).unwrap();
    let direct = file.is_direct();
    assert_eq!(file.give_up_direct().unwrap(), direct);
    assert!(!file.is_direct() && !file.give_up_direct().unwrap());
    assert_eq!(file.read_small(&mut bytes, 4995).unwrap(), 5);
    match DataFile::open(&folder.file("data"), Direct::Always) {
        Ok(file) => assert_eq!(
            failure(file.give_up_direct()).kind,
            ErrorKind::DirectRefused
        ),
        Err(failure) => assert_eq!(failure.kind, ErrorKind::DirectRefused),
    }
}

/// A direct file whose requests the kernel refuses, for its memory is not aligned, continues buffered.
#[test]
fn a_refused_request_is_repeated_buffered() {
    let folder = Folder::new();
    std::fs::write(folder.file("data"), [3; 9000]).unwrap();
    let odd = RingPlan {
        bytes: (16 << 10) + 100,
        depth: 2,
        method: IoMethod::Auto,
    };
    let file = Arc::new(DataFile::open(&folder.file("data"), Direct::Auto).unwrap());
    let mut stream = ReadStream::new(odd, ErrorKind::Read).unwrap();
    for _ in 0..2 {
        stream.ask(&file, 10, 4000).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(stream.front().unwrap(), [3; 4000]);
        stream.release();
    }
}
