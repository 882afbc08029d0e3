//! Hierarchies against the definition, from any log, and what is refused.

use std::os::unix::fs::FileExt;

use super::*;

const METHODS: [LinkageMethod; 5] = [
    LinkageMethod::Complete,
    LinkageMethod::Average,
    LinkageMethod::Weighted,
    LinkageMethod::Ward,
    LinkageMethod::WardUnsquared,
];
const PLAIN: Values = Values {
    scale: 1.0,
    level: None,
};

fn random_pairs(n: usize, mut state: u64) -> Vec<f64> {
    let next = |_| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..n * (n - 1) / 2).map(next).collect()
}

/// All pairs as a square matrix.
fn square(pairs: &[f64], n: usize) -> Vec<f64> {
    let mut found = vec![0.0; n * n];
    let places = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
    for ((i, j), &distance) in places.zip(pairs) {
        (found[i * n + j], found[j * n + i]) = (distance, distance);
    }
    found
}

fn link(pairs: &[f64], n: usize, method: LinkageMethod) -> Result<Vec<HierarchyRow>, Unjoined> {
    let array = square(pairs, n);
    let mut rows = ArrayRows::new(&array, n, PLAIN);
    link_rows(&mut rows, KeptRows::in_memory(), None, method, |_| true)
}

/// A file without a name.
fn file(name: &str) -> std::fs::File {
    let path = std::env::temp_dir().join(format!("tartan-linkage-{}-{name}", std::process::id()));
    let made = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    std::fs::remove_file(&path).expect("a file that was just made");
    made.expect("a folder for temporary files")
}

/// The definition: the closest of all pairs of clusters in every step.
fn reference(pairs: &[f64], n: usize, method: LinkageMethod) -> Vec<HierarchyRow> {
    let mut d = vec![vec![f64::INFINITY; 2 * n - 1]; 2 * n - 1];
    let places = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
    for ((i, j), &distance) in places.zip(pairs) {
        d[i][j] = distance;
        d[j][i] = distance;
    }
    let mut sizes = vec![1.0; n];
    let mut left: Vec<usize> = (0..n).collect();
    let mut steps = Vec::new();
    while left.len() > 1 {
        let choices = left
            .iter()
            .flat_map(|&a| left.iter().map(move |&b| (a, b)))
            .filter(|(a, b)| a < b);
        let (a, b) = choices
            .min_by(|x, y| d[x.0][x.1].total_cmp(&d[y.0][y.1]))
            .unwrap();
        let new = n + steps.len();
        left.retain(|&other| other != a && other != b);
        for &other in &left {
            let (x, y) = (d[a][other], d[b][other]);
            d[new][other] = match method {
                LinkageMethod::Complete => x.max(y),
                LinkageMethod::Average => (sizes[a] * x + sizes[b] * y) / (sizes[a] + sizes[b]),
                LinkageMethod::Weighted => (x + y) / 2.0,
                LinkageMethod::Ward => {
                    let (a_size, b_size, size) = (sizes[a], sizes[b], sizes[other]);
                    let squares = (a_size + size) * x * x + (b_size + size) * y * y;
                    ((squares - size * d[a][b] * d[a][b]) / (a_size + b_size + size)).sqrt()
                }
                LinkageMethod::WardUnsquared => {
                    let (a_size, b_size, size) = (sizes[a], sizes[b], sizes[other]);
                    ((a_size + size) * x + (b_size + size) * y - size * d[a][b])
                        / (a_size + b_size + size)
                }
            };
            d[other][new] = d[new][other];
        }
        left.push(new);
        sizes.push(sizes[a] + sizes[b]);
        steps.push([a as f64, b as f64, d[a][b], sizes[new]]);
    }
    steps
}

#[test]
fn equals_the_reference() {
    for n in 1..50 {
        let pairs = random_pairs(n, n as u64);
        for method in METHODS {
            let (found, expected) = (
                link(&pairs, n, method).unwrap(),
                reference(&pairs, n, method),
            );
            assert_eq!(found.len(), expected.len());
            for (step, other) in found.iter().zip(&expected) {
                let same = [0, 1, 3].iter().all(|&at| step[at] == other[at]);
                assert!(
                    same && (step[2] - other[2]).abs() < 1e-12,
                    "{n} {method:?}: {step:?} {other:?}"
                );
            }
        }
    }
}

#[test]
fn wards_distances_are_what_joining_adds_to_the_cost() {
    let n = 12;
    let pairs = random_pairs(n, 3);
    let steps = link(&pairs, n, LinkageMethod::WardUnsquared).unwrap();
    let mut items: Vec<Vec<usize>> = (0..n).map(|item| vec![item]).collect();
    let cost = |items: &[usize]| {
        let sum = |(i, j): (usize, usize)| match i < j {
            true => pairs[i * (2 * n - i - 1) / 2 + j - i - 1],
            false => 0.0,
        };
        let both = items
            .iter()
            .flat_map(|&i| items.iter().map(move |&j| (i, j)));
        2.0 * both.map(sum).sum::<f64>() / items.len() as f64
    };
    for step in steps {
        let [a, b] = [0, 1].map(|at| items[step[at] as usize].clone());
        let joined = [a.clone(), b.clone()].concat();
        let added = cost(&joined) - cost(&a) - cost(&b);
        assert!((added - step[2]).abs() < 1e-12, "{added} {step:?}");
        items.push(joined);
    }
}

#[test]
fn equal_distances_join_in_the_order_of_items() {
    for method in [
        LinkageMethod::Complete,
        LinkageMethod::Average,
        LinkageMethod::Weighted,
    ] {
        let steps = link(&[1.0; 6], 4, method).unwrap();
        assert_eq!(
            steps,
            [
                [0.0, 1.0, 1.0, 2.0],
                [2.0, 4.0, 1.0, 3.0],
                [3.0, 5.0, 1.0, 4.0]
            ]
        );
    }
}

#[test]
fn the_chain_ends_before_a_place_that_is_gone() {
    let array = [1.0; 25];
    let mut rows = ArrayRows::new(&array, 5, PLAIN);
    let mut chain = Chain::new(&mut rows, KeptRows::in_memory(), None);
    chain.chain = vec![4, 1, 3];
    chain.settle(1, 2, 1.0);
    assert_eq!(chain.chain, [4]);
    chain.settle(0, 3, 1.0);
    assert_eq!(chain.chain, [4]);
}

#[test]
fn stops_on_request_and_goes_on_from_any_log() {
    let n = 60;
    // Few values: ties, of which the order of the chain decides.
    let pairs: Vec<f64> = random_pairs(n, 7)
        .iter()
        .map(|value| (value * 5.0).ceil() * 0.1)
        .collect();
    let array = square(&pairs, n);
    for method in METHODS {
        let expected = link(&pairs, n, method).unwrap();
        for (last, keeps_rows) in [(55, true), (40, true), (40, false), (3, true), (3, false)] {
            let (mut kept, log) = (file("kept"), file("log"));
            let go = |kept: &std::fs::File, least: usize| {
                let mut rows = ArrayRows::new(&array, n, PLAIN);
                let log = Log::new(log.try_clone().unwrap(), 5);
                let kept = KeptRows::in_file(kept.try_clone().unwrap());
                link_rows(&mut rows, kept, Some(log), method, |left| left > least)
            };
            assert!(matches!(go(&kept, last), Err(Unjoined::Stopped)));
            if !keeps_rows {
                kept = file("lost");
            }
            assert_eq!(go(&kept, 0).unwrap(), expected, "{method:?} {last}");
            // The log is whole now; without its last bytes, and with a byte that is wrong, it ends earlier.
            let length = log.metadata().unwrap().len();
            log.set_len(length - 7).unwrap();
            assert_eq!(go(&kept, 0).unwrap(), expected);
            log.write_all_at(&[77], length / 2).unwrap();
            assert_eq!(go(&kept, 0).unwrap(), expected);
        }
    }
}

#[test]
fn refuses_records_of_other_rows() {
    let array = square(&random_pairs(9, 5), 9);
    let log = file("foreign");
    let go = |n: usize, log: &std::fs::File| {
        let mut rows = ArrayRows::new(&array[..n * n], n, PLAIN);
        let log = Log::new(log.try_clone().unwrap(), 0);
        link_rows(
            &mut rows,
            KeptRows::in_memory(),
            Some(log),
            LinkageMethod::Complete,
            |_| true,
        )
    };
    go(9, &log).unwrap();
    assert!(matches!(go(3, &log), Err(Unjoined::ForeignLog)));
}

#[test]
fn reads_all_types_alike() {
    let n = 30;
    let whole: Vec<i16> = (square(&random_pairs(n, 5), n).iter())
        .map(|value| (value * 300.0) as i16)
        .collect();
    let [single, double] = [0, 1].map(|_| whole.iter().map(|&value| f64::from(value)));
    let (single, double): (Vec<f32>, Vec<f64>) =
        (single.map(|value| value as f32).collect(), double.collect());
    let values = Values {
        scale: 0.25,
        level: Some(2.0),
    };
    let mut of_file = file("rows");
    let write = |file: &std::fs::File, bytes: Vec<u8>| file.write_all_at(&bytes, 3).unwrap();
    let join = |rows: &mut dyn ItemRows| {
        link_rows(
            rows,
            KeptRows::in_memory(),
            None,
            LinkageMethod::Average,
            |_| true,
        )
        .unwrap()
    };
    let expected = join(&mut ArrayRows::new(&double, n, values));
    assert_eq!(expected[0][2], 0.0); // below the level
    assert_eq!(join(&mut ArrayRows::new(&whole, n, values)), expected);
    assert_eq!(join(&mut ArrayRows::new(&single, n, values)), expected);
    write(
        &of_file,
        whole.iter().flat_map(|value| value.to_le_bytes()).collect(),
    );
    assert_eq!(
        join(&mut FileRows::<i16>::new(
            of_file.try_clone().unwrap(),
            3,
            n,
            values
        )),
        expected
    );
    write(
        &of_file,
        single
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    );
    assert_eq!(
        join(&mut FileRows::<f32>::new(
            of_file.try_clone().unwrap(),
            3,
            n,
            values
        )),
        expected
    );
    of_file = file("doubles");
    write(
        &of_file,
        double
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    );
    assert_eq!(
        join(&mut FileRows::<f64>::new(of_file, 3, n, values)),
        expected
    );
}

#[test]
fn refuses_directions_that_differ() {
    let array = [0.0, 1.0, 3.0, 3.0, 0.0, 1.0, 1.0, 3.0, 0.0];
    let mut rows = ArrayRows::new(&array, 3, PLAIN);
    let found = link_rows(
        &mut rows,
        KeptRows::in_memory(),
        None,
        LinkageMethod::Average,
        |_| true,
    );
    assert!(matches!(found, Err(Unjoined::Asymmetric)));
}

#[test]
fn refuses_means_that_overflow() {
    let huge = [1e308; 3];
    assert!(matches!(
        link(&huge, 3, LinkageMethod::Average),
        Err(Unjoined::NotFinite)
    ));
    assert_eq!(link(&huge, 3, LinkageMethod::Complete).unwrap().len(), 2);
    let infinite = link(&[f64::INFINITY], 2, LinkageMethod::Complete);
    assert!(matches!(infinite, Err(Unjoined::NotFinite)));
    let missing = link(&[1.0, f64::NAN, 1.0], 3, LinkageMethod::Complete);
    assert!(matches!(missing, Err(Unjoined::Missing(0))));
}

#[test]
fn numbers_clusters_along_edges() {
    let steps = dendrogram(4, [(3, 2, 1.0), (0, 1, 1.0), (1, 3, 2.0)]).unwrap();
    assert_eq!(
        steps,
        [
            [2.0, 3.0, 1.0, 2.0],
            [0.0, 1.0, 1.0, 2.0],
            [4.0, 5.0, 2.0, 4.0]
        ]
    );
    let circle = dendrogram(3, [(0, 1, 1.0), (1, 0, 1.0)]);
    assert!(matches!(circle, Err(Unjoined::Circle)));
}
