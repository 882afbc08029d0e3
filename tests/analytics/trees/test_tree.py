"""Trees: neighbour joining against its definition, UPGMA, Newick both ways, comparison, drawings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.analytics import Monitor, Tree, draw_text, neighbor_joining, read_newick, upgma
from tartan.errors import ConfigError, RunCancelledError


def random_tree(n: int, seed: int) -> Tree:
    """Return an unrooted tree with n leaves, of which leaf i is node i, and lengths 0.1 to 1.1."""
    rng = np.random.default_rng(seed)
    parents, free = [-1] * (2 * n - 2), list(range(n))
    for node in range(n, 2 * n - 2):
        last = node == 2 * n - 3
        for child in rng.choice(len(free), 3 if last else 2, replace=False):
            parents[free[child]] = node
        free = [i for i in free if parents[i] < 0] + [node]
    lengths = np.where(np.array(parents) >= 0, 0.1 + rng.random(2 * n - 2), 0.0)
    return Tree(np.array(parents), lengths, tuple(f"leaf {i}" if i < n else "" for i in range(2 * n - 2)), rooted=False)


def path_lengths(tree: Tree) -> np.ndarray:
    """Return the lengths of the ways between all leaves, in the order of their names."""
    leaves = sorted(tree.leaves, key=lambda leaf: tree.names[leaf])
    above = []
    for leaf in leaves:
        node, way, passed = leaf, {}, 0.0
        while node >= 0:
            way[node] = passed
            passed += tree.lengths[node]
            node = int(tree.parents[node])
        above.append(way)
    n = len(leaves)
    D = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            D[i, j] = D[j, i] = min(above[i][node] + above[j][node] for node in above[i].keys() & above[j].keys())
    return D


def reference(D: np.ndarray) -> Tree:
    """Join neighbours by the definition: all pairs in every step, sums taken anew."""
    n = len(D)
    d = np.zeros((2 * n - 2, 2 * n - 2))
    d[:n, :n] = D
    nodes, parents, lengths = list(range(n)), [-1] * (2 * n - 2), [0.0] * (2 * n - 2)
    for new in range(n, 2 * n - 3):
        m = len(nodes)
        part = d[np.ix_(nodes, nodes)]
        sums = part.sum(axis=0)
        q = (m - 2) * part - sums[:, None] - sums[None, :]
        np.fill_diagonal(q, np.inf)
        i, j = divmod(int(q.argmin()), m)
        a, b = nodes[i], nodes[j]
        lengths[a] = d[a, b] / 2 + (sums[i] - sums[j]) / (2 * (m - 2))
        lengths[b] = d[a, b] - lengths[a]
        parents[a] = parents[b] = new
        d[new, :] = d[:, new] = (d[a] + d[b] - d[a, b]) / 2
        d[new, new] = 0
        nodes = [node for node in nodes if node not in (a, b)] + [new]
    root = 2 * n - 3
    for k in range(3):
        i, j, h = nodes[k], nodes[k - 1], nodes[k - 2]
        parents[i], lengths[i] = root, (d[i, j] + d[i, h] - d[j, h]) / 2
    return Tree(np.array(parents), np.array(lengths), tuple(map(str, range(n))) + ("",) * (n - 2), rooted=False)


def symmetric(n: int, seed: int, dtype: type = np.float64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    D = rng.random((n, n))
    np.fill_diagonal(D, 0)
    return np.asarray(D + D.T, dtype)


@pytest.mark.parametrize("n", [4, 5, 9, 33, 100, pytest.param(200, marks=pytest.mark.slow)])
def test_neighbor_joining_equals_its_definition(n: int) -> None:
    points = np.random.default_rng(n).normal(size=(n, 3))
    for D in (symmetric(n, n), np.sqrt(((points[:, None] - points) ** 2).sum(2))):
        found, expected = neighbor_joining(D), reference(D)
        assert found.robinson_foulds(expected) == 0
        order = sorted(range(n), key=str)
        np.testing.assert_allclose(path_lengths(found), path_lengths(expected), atol=1e-10)
        np.testing.assert_allclose(found.lengths[order], expected.lengths[order], atol=1e-10)


@pytest.mark.parametrize(("n", "dtype"), [(4, np.float64), (30, np.float64), (120, np.float64), (60, np.float32)])
def test_additive_distances_give_their_tree_back(n: int, dtype: type) -> None:
    tree = random_tree(n, n)
    D = path_lengths(tree).astype(dtype)
    names = sorted(tree.leaf_names)
    before = D.copy()
    found = neighbor_joining(D, names)
    np.testing.assert_array_equal(D, before)
    with pytest.raises(ConfigError, match=r"0 \(leaf 0\) and itself is 1, not 0"):
        neighbor_joining(D + np.eye(n, dtype=dtype), names)
    assert found.robinson_foulds(tree) == 0
    np.testing.assert_allclose(path_lengths(found), D, atol=1e-10 if dtype is np.float64 else 1e-3)
    assert neighbor_joining(D[np.triu_indices(n, 1)], names).newick() == found.newick()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_tree_may_be_built_in_place(dtype: type) -> None:
    D = symmetric(40, 3, dtype)
    work = D.copy()
    tree = neighbor_joining(work, overwrite=True)
    assert tree.newick() == neighbor_joining(D).newick()
    assert not np.array_equal(work, D)
    D.flags.writeable = False
    assert neighbor_joining(D, overwrite=True).newick() == tree.newick()


def test_trees_of_other_forms_of_a_matrix() -> None:
    tree = random_tree(20, 5)
    D, names = path_lengths(tree), sorted(tree.leaf_names)
    stored = np.rint(D / D.max() * 32767).astype(">i2")
    for form in (stored, D[np.triu_indices(20, 1)], D.tolist()):
        assert neighbor_joining(form, names).robinson_foulds(tree) == 0


def test_distances_are_transformed_before_joining() -> None:
    """Saturated distances d = (1 - exp(-t)) / 2 give their tree back when the formula undoes them."""
    tree = random_tree(60, 7)
    D = (1 - np.exp(-path_lengths(tree))) / 2
    names = sorted(tree.leaf_names)
    assert neighbor_joining(D, names, transform="-log(1-2d)").robinson_foulds(tree) == 0
    assert neighbor_joining(D, names).robinson_foulds(tree) > 0


def test_leaves_come_first_and_keep_their_names() -> None:
    tree = neighbor_joining(symmetric(6, 1), list("fedcba"))
    assert tree.names[:6] == tuple("fedcba")
    assert sorted(tree.leaves) == list(range(6))
    assert not tree.rooted
    assert tree.n_nodes == 10


def test_few_items() -> None:
    assert neighbor_joining([[0.0]], ["a"]).newick() == "a;"
    assert neighbor_joining([[0, 3], [3, 0]], ["a", "b"]).newick() == "(a:1.5,b:1.5);"
    assert upgma([[0.0]], ["a"]).newick() == "a;"
    assert upgma([[0, 3], [3, 0]], ["a", "b"]).newick() == "(a:1.5,b:1.5);"
    assert neighbor_joining([3.0]).leaf_names == ("0", "1")


def test_upgma_is_average_linkage() -> None:
    D = np.array(
        [[0, 17, 21, 31, 23], [17, 0, 30, 34, 21], [21, 30, 0, 28, 39], [31, 34, 28, 0, 43], [23, 21, 39, 43, 0]]
    )
    tree = upgma(D, list("abcde"))
    assert tree.rooted
    assert tree.robinson_foulds(read_newick("(((a,b),e),(c,d));")) == 0
    heights = np.zeros(tree.n_nodes)
    for node in reversed(tree.order[1:]):
        heights[tree.parents[node]] = heights[node] + tree.lengths[node]
    assert sorted(heights[5:]) == [8.5, 11.0, 14.0, 16.5]


@pytest.mark.parametrize("build", [neighbor_joining, upgma])
def test_what_is_no_distance_matrix_is_refused(build: type) -> None:
    D = symmetric(5, 0)
    nan, uneven = D.copy(), D.copy()
    nan[3, 1] = nan[1, 3] = np.nan
    uneven[4, 2] += 0.1
    for wrong, message in [
        (nan, "not finite; leave failed items out|of 1 and 3 is NaN"),
        (uneven, "symmetric"),
        (D[:4], r"shape \(4, 5\)"),
        (np.zeros((0, 0)), r"shape is \(0, 0\)"),
        (np.zeros(4), "4 values in one row are not"),
        (np.array([["a"]]), "dissimilarities must be numbers"),
    ]:
        with pytest.raises(ConfigError, match=message):
            build(wrong)
    with pytest.raises(ConfigError, match="2 names for 5 items"):
        build(D, ["a", "b"])


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)


@pytest.mark.slow
@given(st.integers(3, 7), st.integers(0, 100), st.data())
def test_newick_is_read_back(n: int, seed: int, data: st.DataObject) -> None:
    shape = random_tree(n, seed)
    labels = tuple(data.draw(st.lists(names, min_size=shape.n_nodes, max_size=shape.n_nodes)))
    tree = Tree(shape.parents, shape.lengths, labels)
    again = read_newick(tree.newick(digits=17))
    assert again.newick(digits=17) == tree.newick(digits=17)
    assert again.leaf_names == tree.leaf_names
    assert [again.names[node] for node in again.order] == [tree.names[node] for node in tree.order]
    np.testing.assert_array_equal(again.lengths[list(again.order[1:])], tree.lengths[list(tree.order[1:])])


def test_names_are_quoted_by_the_rules() -> None:
    tree = neighbor_joining([1, 1, 1], ["E. coli", "it's", "a_b"])
    assert tree.newick() == "('E. coli':0.5,'it''s':0.5,'a_b':0.5);"
    assert read_newick("(a_b,'c_d')in_ner:3;").names == ("in ner", "a b", "c_d")


@pytest.mark.parametrize(
    ("text", "newick"),
    [
        (" ( a : 1 , b:2e-3 ) ; ", "(a:1,b:0.002);"),
        ("[&R] (a[x(]:1,b);[end]", "(a:1,b);"),
        ("a;", "a;"),
        (";", ";"),
        ("((,),);", "((,),);"),
        ("(a,b)root:5;", "(a,b)root;"),
        ("('':1,b:-0.5)'x y':1;", "(:1,b:-0.5)'x y';"),
    ],
)
def test_forms_of_newick(text: str, newick: str) -> None:
    assert read_newick(text).newick() == newick


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0), ("(a,b)", 5), ("(a,b;", 4), ("(a,b));", 5), ("a,b;", 1), ("(a b,c);", 3), ("(a:x,b);", 3),
        ("(a:,b);", 3), ("(a:1 2,b);", 5), ("(a,b); c", 7), ("(a,'b);", 3), ("(a(b),c);", 2), ("(a:1:2);", 4),
        ("(a]);", 2),
    ],
)  # fmt: skip
def test_what_is_no_newick_is_refused(text: str, position: int) -> None:
    with pytest.raises(ConfigError, match="not Newick") as caught:
        read_newick(text)
    assert caught.value.context == {"position": position}


def test_deep_trees_need_no_recursion() -> None:
    n = 5000
    text = "(" * n + "a" + ",x)" * n + ";"
    tree = read_newick(text)
    assert tree.n_nodes == 2 * n + 1
    assert tree.newick() == text
    assert len(draw_text(tree, 60).splitlines()) == n + 1


def test_robinson_foulds() -> None:
    a = read_newick("((a,b),(c,d),e);")
    assert a.robinson_foulds(read_newick("(((e,(d,c)),b),a);")) == 0
    assert a.robinson_foulds(read_newick("((a,c),(b,d),e);")) == 4
    assert a.robinson_foulds(read_newick("((a,c),(b,d),e);"), normalized=True) == 1
    assert a.robinson_foulds(read_newick("((a,b),c,d,e);")) == 1
    assert a.robinson_foulds(read_newick("(a,b,c,d,e);")) == 2
    with pytest.raises(ConfigError, match="different leaves, such as 'f'"):
        a.robinson_foulds(read_newick("((a,b),(c,d),e,f);"))
    with pytest.raises(ConfigError, match="3 leaves have 2 names"):
        read_newick("(a,a,b);").robinson_foulds(a)


def test_a_root_at_the_midpoint() -> None:
    tree = read_newick("((a:1,b:6):1,c:2,d:1);").rooted_at_midpoint()
    assert tree.newick() == "(((c:2,d:1):1,a:1):1.5,b:4.5);"
    assert read_newick("(a:1,(b:2,c:1):4);").rooted_at_midpoint().newick() == "(a:3.5,(b:2,c:1):1.5);"
    assert read_newick("a;").rooted_at_midpoint().newick() == "a;"
    flat = read_newick("(a,b,(c,d));")
    assert flat.rooted_at_midpoint().robinson_foulds(flat) == 0


@given(st.integers(3, 30), st.integers(0, 1000))
def test_a_new_root_keeps_the_ways_between_leaves(n: int, seed: int) -> None:
    tree = random_tree(n, seed)
    rooted = tree.rooted_at_midpoint()
    D = path_lengths(tree)
    np.testing.assert_allclose(path_lengths(rooted), D, atol=1e-12)
    assert rooted.robinson_foulds(tree) == 0
    depth = np.zeros(rooted.n_nodes)
    for node in rooted.order[1:]:
        depth[node] = depth[rooted.parents[node]] + rooted.lengths[node]
    below_first = max(depth[leaf] for leaf in rooted.leaves)
    assert below_first == pytest.approx(D.max() / 2)


def test_a_drawing_of_a_small_tree() -> None:
    tree = read_newick("((a:1,b:1):1,(c:2,'long name':0.5):0.5);")
    assert draw_text(tree, 26).splitlines() == [
        "┌─────┬──────    a",
        "┤     └──────    b",
        "└──┬──────────── c",
        "   └───          long name",
    ]


def test_a_drawing_shows_support_where_it_fits() -> None:
    tree = read_newick("(((a:1,b:1)97:1,c:2)100:0.1,d:3);")
    assert draw_text(tree, 26).splitlines() == [
        " ┌────97┬────────        a",
        "┌┤      └────────        b",
        "┤└───────────────        c",
        "└─────────────────────── d",
    ]


def test_drawings_fit_their_width() -> None:
    tree = random_tree(40, 2)
    for width in (20, 50, 200):
        lines = draw_text(tree, width).splitlines()
        assert len(lines) == 40
        assert max(map(len, lines)) <= width
        assert {line.split()[-1] for line in lines} >= ({str(i) for i in range(40)} if width > 20 else set())
    wide = Tree(np.array([1, -1]), np.array([math.nan, 0]), ("n" * 500, ""))
    assert draw_text(wide, 30).endswith("n" * 14 + "…")
    assert tree.draw(80) == draw_text(tree.rooted_at_midpoint(), 80)


def test_arrays_that_are_no_tree_are_refused() -> None:
    with pytest.raises(ConfigError, match="one root"):
        Tree(np.array([-1, -1]), np.zeros(2), ("a", "b"))
    with pytest.raises(ConfigError, match="circle"):
        Tree(np.array([-1, 2, 1]), np.zeros(3), ("a", "b", "c"))


def test_a_stop_is_heard_while_neighbours_are_joined() -> None:
    distances = np.ones((9, 9))
    monitor = Monitor()
    monitor.cancel(2)
    with pytest.raises(RunCancelledError):
        neighbor_joining(distances, monitor=monitor)
    np.testing.assert_array_equal(distances, 1.0)


def test_a_name_of_two_lines_is_drawn_in_one() -> None:
    assert len(read_newick("('a\nb':1,c:1);").draw(40).splitlines()) == 2


def test_upgma_hears_a_stop() -> None:
    monitor = Monitor(verbose=0)
    monitor.cancel()
    with pytest.raises(RunCancelledError):
        upgma(np.ones((4, 4)) - np.eye(4), monitor=monitor)


OUTGROUPS = [
    ("((a:1,b:2):1,c:3,d:4);", ["a"], "((b:2,(c:3,d:4):1):0.5,a:0.5);"),
    ("((a:1,b:2):1,c:3,d:4);", ["a", "b"], "((a:1,b:2):0.5,(c:3,d:4):0.5);"),
    ("((a:1,b:2):1,c:3,d:4);", ["d", "c"], "((a:1,b:2):0.5,(c:3,d:4):0.5);"),
    ("((a:1,b:2):1,(c:3,d:4):2);", ["c", "d"], "((a:1,b:2):1.5,(c:3,d:4):1.5);"),
    ("((a:1,b:2):1,(c:3,d:4):2);", ["b"], "((a:1,(c:3,d:4):3):1,b:1);"),
    ("((a,b),c,d);", ["c"], "(((a,b),d),c);"),
    ("(a:1,b:3);", ["b"], "(a:2,b:2);"),
]


@pytest.mark.parametrize(("text", "outgroup", "expected"), OUTGROUPS)
def test_a_root_parts_an_outgroup(text: str, outgroup: list[str], expected: str) -> None:
    tree = read_newick(text)
    rooted = tree.rooted_at(outgroup)
    wanted = read_newick(expected)
    np.testing.assert_allclose(path_lengths(rooted), path_lengths(tree))
    np.testing.assert_allclose(path_lengths(wanted), path_lengths(tree))
    top = rooted.children[rooted.order[0]]
    sides = [{rooted.names[leaf] for leaf in rooted.leaves if node in climb(rooted, leaf)} for node in top]
    assert set(outgroup) in sides
    assert len(top) == 2
    halves = [float(rooted.lengths[node]) for node in top]
    assert halves[0] == halves[1] or all(map(math.isnan, halves))
    if len(tree.leaves) > 3:
        assert rooted.robinson_foulds(tree) == 0


def climb(tree: Tree, node: int) -> list[int]:
    """Return a node and all above it."""
    found = [node]
    while tree.parents[found[-1]] >= 0:
        found.append(int(tree.parents[found[-1]]))
    return found


@pytest.mark.parametrize(
    ("outgroup", "reason"),
    [
        (["e"], "there is no leaf 'e' in the tree"),
        ([], "no leaf ''"),
        (["a", "b", "c", "d"], "all leaves of the tree are in the outgroup"),
        (["a", "c"], "no branch of the tree parts a, c from all other leaves"),
    ],
)
def test_what_is_no_outgroup_is_named(outgroup: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_newick("((a:1,b:2):1,c:3,d:4);").rooted_at(outgroup)


def test_negative_lengths_become_zero() -> None:
    assert read_newick("(a:-1,b:2,c:1);").rooted_at(["a"]).newick() == "((b:2,c:1):-0.5,a:-0.5);"
    assert read_newick("(a:-1,b:2,c);").with_lengths_from_zero().newick() == "(a:0,b:2,c);"
