"""Episodes: sound draws, the same for the same images in any order, kept whole on disk."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.features import Features, as_features
from evaluation.learners.episodes import EpisodeTable, draw_episodes
from sslkit.errors import UserError

SIZES = {"oak": 20, "ash": 24, "elm": 31, "fir": 20, "yew": 22, "box": 40}


def make(sizes: dict[str, int] = SIZES, groups: bool = False) -> Features:
    """Features whose ids are told apart from their order."""
    y = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    rng = np.random.default_rng(0)
    ids = np.array([f"{rng.integers(10**9):09d}.png" for _ in y])
    grouped = np.arange(len(y)) // 2 if groups else None
    return Features(rng.normal(size=(len(y), 4)).astype("f"), y, list(sizes), "d", ids, groups=grouped)


@pytest.fixture(scope="module")
def pool() -> Features:
    return make()


def test_every_episode_has_distinct_ways_and_images_of_them(pool: Features) -> None:
    table = draw_episodes(pool, n_way=4, k_shot=5, n_query=15, episodes=300)
    rows = table.rows(pool)
    assert rows.shape == (300, 4, 20) and (table.n_way, table.k_shot, table.n_query, len(table)) == (4, 5, 15, 300)
    ways = pool.y[rows]
    assert (ways == ways[:, :, :1]).all()
    assert all(len(set(episode[:, 0])) == 4 for episode in ways)
    assert all(len(set(images.ravel())) == 80 for images in rows)


def test_ways_and_images_are_drawn_evenly(pool: Features) -> None:
    """5 standard errors around what a fair draw gives."""
    rows = draw_episodes(pool, n_way=2, k_shot=1, n_query=1, episodes=6000).rows(pool)
    count = np.bincount(pool.y[rows[:, :, 0]].ravel(), minlength=6)
    assert np.abs(count - 2000).max() < 5 * (6000 / 3 * 2 / 3) ** 0.5
    support = np.bincount(rows[:, :, 0].ravel(), minlength=len(pool))[pool.y == 0]
    assert np.abs(support - 100).max() < 5 * 10


def test_the_draw_is_pinned() -> None:
    """A published number stands on its episodes: they must not change with versions or machines."""
    x, ids = np.arange(120, dtype="f").reshape(60, 2), np.array([f"{row:02d}.png" for row in range(60)])
    pool = Features(x, np.arange(60) // 20, ["a", "b", "c"], "d", ids)
    digest = draw_episodes(pool, n_way=3, k_shot=2, n_query=3, episodes=4, seed=7).digest
    assert digest == "ac8fd28c1a9baaf6bcbc15501e23d2441850f8423da429aaa49999098b2707cb"


def test_the_order_of_rows_and_of_classes_does_not_matter(pool: Features) -> None:
    order = np.random.default_rng(1).permutation(len(pool))
    turned = replace(pool.take(order), y=5 - pool.y[order], classes=list(pool.classes)[::-1])
    one, other = (draw_episodes(f, n_way=3, episodes=50) for f in (pool, turned))
    assert one.digest == other.digest
    assert (pool.ids[one.rows(pool)] == turned.ids[other.rows(turned)]).all()


def test_a_seed_gives_one_table_and_touches_no_global_state(pool: Features) -> None:
    state = np.random.get_state()[1].copy()
    digests = [draw_episodes(pool, episodes=20, seed=seed).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]
    assert (np.random.get_state()[1] == state).all()


def test_no_query_shares_a_group_with_its_support() -> None:
    pool = make(dict.fromkeys(SIZES, 40), groups=True)
    table = draw_episodes(pool, k_shot=5, n_query=15, episodes=100)
    group = pool.groups[table.rows(pool)]
    assert not any(np.isin(way[5:], way[:5]).any() for episode in group for way in episode)
    plain = replace(pool, groups=None)
    group = pool.groups[draw_episodes(plain, k_shot=5, n_query=15, episodes=100).rows(plain)]
    assert any(np.isin(way[5:], way[:5]).any() for episode in group for way in episode)


def test_groups_raise_what_a_class_needs() -> None:
    pool = make(dict.fromkeys(SIZES, 24), groups=True)
    with pytest.raises(
        UserError, match=r"has 24 images and an episode needs 25 \(5 support \+ 15 query, copies, and im"
    ):
        draw_episodes(pool, k_shot=5)
    assert len(draw_episodes(pool, k_shot=4, episodes=2)) == 2


def test_a_small_class_is_named_or_dropped(pool: Features) -> None:
    with pytest.raises(UserError, match=r"'fir' has 20 images .* needs 21 \(6 support \+ 15 query\); 2 classes"):
        draw_episodes(pool, n_way=3, k_shot=6)
    table = draw_episodes(pool, n_way=3, k_shot=6, episodes=50, on_small="drop")
    assert sorted(table.left_out) == ["fir", "oak"]
    assert set(np.unique(pool.y[table.rows(pool)])) == {1, 2, 4, 5}
    with pytest.raises(UserError, match=r"n_way=5, but the pool has only 4 classes of enough images \(2 are too small"):
        draw_episodes(pool, k_shot=6, on_small="drop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_way": 7}, "n_way=7, but the pool has only 6 classes"),
        ({"n_way": 1}, "n_way must be a whole number, at least 2"),
        ({"k_shot": 0}, "k_shot must be a whole number, at least 1"),
        ({"n_query": 2.5}, "n_query must be a whole number"),
        ({"episodes": 1}, "episodes must be a whole number"),
        ({"on_small": "skip"}, "on_small must be"),
    ],
)
def test_bad_numbers(pool: Features, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw_episodes(pool, **options)


def test_only_classes_with_images_count(pool: Features) -> None:
    few = pool.take(pool.y != 2)
    assert 2 not in few.y[draw_episodes(few, episodes=30).rows(few)]
    with pytest.raises(UserError, match="only 5 classes"):
        draw_episodes(few, n_way=6)


def test_a_saved_table_is_the_same(pool: Features, tmp_path) -> None:
    table = draw_episodes(pool, n_way=3, k_shot=6, episodes=40, on_small="drop", seed=3)
    table.save(tmp_path / "sub" / "episodes.npz")
    loaded = EpisodeTable.load(tmp_path / "sub" / "episodes.npz")
    assert loaded.digest == table.digest and (loaded.rows(pool) == table.rows(pool)).all()
    assert (loaded.seed, list(loaded.left_out), loaded.k_shot) == (3, list(table.left_out), 6)
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["episodes.npz"]


def test_the_digest_covers_all_of_the_table(pool: Features) -> None:
    table = draw_episodes(pool, episodes=5)
    positions = table.positions.copy()
    positions[4, 4, 15] += 1
    changed = [replace(table, positions=positions), replace(table, k_shot=2), replace(table, pool="0")]
    assert len({table.digest, *(other.digest for other in changed)}) == 4


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.98])
def test_a_cut_file_is_refused(pool: Features, tmp_path, keep: float) -> None:
    path = tmp_path / "episodes.npz"
    draw_episodes(pool, episodes=50).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else keep])
    with pytest.raises(UserError, match="damaged"):
        EpisodeTable.load(path)


def test_a_changed_or_missing_table_is_refused(pool: Features, tmp_path) -> None:
    path = tmp_path / "episodes.npz"
    table = draw_episodes(pool, episodes=5)
    table.save(path)
    with np.load(path) as file:
        parts = dict(file)
    parts["positions"][0, 0, :2] = parts["positions"][0, 0, 1::-1]
    np.savez(path, **parts)
    with pytest.raises(UserError, match="its digest is not that of its episodes"):
        EpisodeTable.load(path)
    np.savez(path, a=np.zeros(2))
    with pytest.raises(UserError, match="not an episode table"):
        EpisodeTable.load(path)
    with pytest.raises(UserError, match="there is no episode table"):
        EpisodeTable.load(tmp_path / "none.npz")


def test_another_pool_is_refused(pool: Features) -> None:
    table = draw_episodes(pool, episodes=5)
    renamed = pool.ids.copy()
    renamed[3] = "other.png"
    for other in (pool.take(np.arange(len(pool) - 1)), replace(pool, ids=renamed), replace(pool, y=5 - pool.y)):
        with pytest.raises(UserError, match="another pool"):
            table.rows(other)


def test_plain_arrays_keep_their_episodes_in_any_order() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)).astype("f")
    names = np.repeat(["c", "a", "b"], 20)
    order = np.random.default_rng(1).permutation(60)
    one, other = as_features((x, names)), as_features((x[order], names[order]))
    a, b = (draw_episodes(f, n_way=3, episodes=10).rows(f) for f in (one, other))
    assert (one.x[a] == other.x[b]).all()


def test_several_labels_an_image_are_refused() -> None:
    x, y = np.random.default_rng(0).normal(size=(8, 3)), np.tile([[1, -1]], (8, 1))
    with pytest.raises(UserError, match="few_shot needs one label per image"):
        draw_episodes((x, y))


def test_numpys_integers_are_integers(pool: Features, tmp_path) -> None:
    given = {"n_way": 4, "k_shot": 2, "n_query": 5, "episodes": 3, "seed": 7}
    table = draw_episodes(pool, **{name: np.int64(value) for name, value in given.items()})
    assert table.digest == draw_episodes(pool, **given).digest
    table.save(tmp_path / "t.npz")
    assert EpisodeTable.load(tmp_path / "t.npz").digest == table.digest
