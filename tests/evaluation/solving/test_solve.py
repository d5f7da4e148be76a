"""Solve: the best candidate on known images meets the held-back ones once, beside its controls, and is kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_entries
import torch
from PIL import Image
from sklearn.metrics import r2_score

import sslkit
from evaluation.datasets import Reading
from evaluation.solving import output, pretrained, tuned
from evaluation.solving import solve as solving
from evaluation.solving.problem import open_problem
from evaluation.solving.solve import Solution, solve
from sslkit.decision import Continuing
from sslkit.errors import UserError
from sslkit.files.leases import own_folder
from sslkit.zoo.entry import ZooEntry, update

AT_ONCE = {"methods": [], "tune": False, "budget": "10h", "progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    for seed in (0, 1):
        random_entries.made(folder, f"net{seed}", "fashion_mnist", seed=seed)
    return folder


def run(zoo: Any, out: Path, data: Any = "digits", **changed: Any) -> tuple[Solution, list[str]]:
    said: list[str] = []
    options = {**AT_ONCE, "cache": out / "cache", **changed}
    return solve(data, zoo, out=out, say=said.append, **options), said


@pytest.fixture(scope="module")
def solution(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Solution:
    torch.set_num_threads(1)
    return run(zoo, tmp_path_factory.mktemp("solved"))[0]


def test_the_first_on_known_images_is_chosen_and_alone_meets_the_held_back_ones(solution: Solution) -> None:
    values = [judged.value for judged in solution.judged]
    assert values == sorted(values, reverse=True) and len(values) == 2
    assert solution.answer.result.model == solution.judged[0].name
    assert [result.model for result in solution.controls] == ["pixels", f"random:{solution.judged[0].model.name}"]
    assert solution.answer.result.n == 359 and len({result.paired_on for result in solution.results}) == 1


def test_a_random_network_is_not_taken_beside_raw_pixels(solution: Solution) -> None:
    assert solution.decision.taken == "" and str(solution.decision).startswith("take none")


def test_the_kept_model_answers_as_it_was_measured(solution: Solution, tmp_path: Path) -> None:
    classifier = solution.entry.classifier()
    held_back = open_problem("digits", Reading(cache=tmp_path), 0).held_back
    images = solution.answer.judged.model.clean(held_back.images)
    pixels = images.__getitems__(list(range(len(images))))["images"]
    with torch.inference_mode():
        features = solution.entry.backbone()(solution.answer.judged.model.normalize(pixels))
        probabilities = classifier(features)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(359))
    right = (probabilities.argmax(1).numpy() == held_back.y).mean()
    assert right == pytest.approx(solution.answer.result.value)
    assert classifier.about["measured"]["value"] == pytest.approx(right) and classifier.classes == tuple("0123456789")


def test_the_same_call_goes_on_with_what_is_finished(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = run(zoo, tmp_path)
    monkeypatch.setattr("evaluation.solving.probes.cross_fit", lambda *_: pytest.fail("a stage was done again"))
    second, _ = run(zoo, tmp_path)
    assert [judged.value for judged in first.judged] == [judged.value for judged in second.judged]
    assert first.answer.result.value == second.answer.result.value


def test_a_stop_finishes_the_best_so_far(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, calls = solving.judge_in_folds, []

    def stop_at_third(session: Any, model: Any, name: str) -> Any:
        calls.append(name)
        if len(calls) == 3:  # raw pixels and a network are judged
            raise KeyboardInterrupt
        return judge(session, model, name)

    monkeypatch.setattr(solving, "judge_in_folds", stop_at_third)
    found, said = run(zoo, tmp_path)
    assert len(found.judged) == 1 and found.entry.classifier().classes
    assert "stopped" in " ".join(said)


def test_what_does_not_fit_is_left_out_and_said(zoo: Path, tmp_path: Path) -> None:
    found, said = run(zoo, tmp_path, budget="0.1s", tune=True, methods=["byol"])
    assert len(found.judged) == 1 and len(found.left_out) >= 2
    assert all(any(name in line for line in said) for name in found.left_out)


def test_fine_tuning_and_new_networks_compete(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "RATES", (1e-3,))
    monkeypatch.setattr(tuned, "MOST_EPOCHS", 1)
    monkeypatch.setattr(pretrained, "MOST", 1)
    monkeypatch.setattr(pretrained, "FEWEST_NEW", 1)
    found, said = run(zoo, tmp_path, tune=True, methods=["byol"], data="digits")
    assert {judged.how for judged in found.judged} == {"probe", "fine-tuned"}
    assert any("byol here" in str(judged) for judged in found.judged)
    gains = [judged.setting["gain"] for judged in found.judged if judged.how == "fine-tuned"]
    assert len(gains) == solving.MOST_TUNED and any("points by tuning" in line for line in said)


@pytest.mark.parametrize("uniformity", [pytest.param(-1.0, marks=pytest.mark.nightly), -3.0])
def test_weights_are_gone_on_from_where_their_features_do_not_speak_against_it(
    uniformity: float, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    monkeypatch.setattr(pretrained, "uniformity", lambda x: uniformity)
    monkeypatch.setattr(pretrained, "Continuing", lambda value, _, images: Continuing(value, True, images))
    monkeypatch.setattr(solving, "train", lambda _, newcomer, __: trained.append(newcomer.name))
    found, said = run(zoo, tmp_path, methods=["byol"])
    name = f"{found.judged[0].name}, byol here"
    assert trained == (["byol here", name] if uniformity == -1.0 else ["byol here"])
    cases = "27 of 27" if uniformity == -1.0 else "1 of 7"
    assert any(name in line and f"kNN rose in {cases} cases" in line for line in said)


def test_a_finished_call_tunes_nothing_again(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "RATES", (1e-3,))
    monkeypatch.setattr(tuned, "MOST_EPOCHS", 1)
    monkeypatch.setattr(
        solving.Contest, "first", property(lambda self: max(self.judged, key=lambda judged: judged.how == "fine-tuned"))
    )
    first, _ = run(zoo, tmp_path, tune=True)
    monkeypatch.setattr("evaluation.tuning.trials.train_classifier", lambda *_, **__: pytest.fail("tuned again"))
    second, _ = run(zoo, tmp_path, tune=True)
    assert [judged.how for judged in (first.answer.judged, second.answer.judged)] == ["fine-tuned"] * 2
    np.testing.assert_array_equal(first.answer.scores, second.answer.scores)


def test_labels_by_coin_are_not_above_a_control(zoo: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (200, 1, 28, 28), dtype=np.uint8)
    labels = np.random.default_rng(1).integers(2, size=200)
    found, _ = run(zoo, tmp_path, data=(pixels, labels))
    assert found.decision.taken == "" and found.answer.result.interval[0] < 0.5 < found.answer.result.interval[1]


def test_ten_labelled_images_say_how_little_is_known(zoo: Path, tmp_path: Path) -> None:
    digits = open_problem("digits", Reading(cache=tmp_path), 0).development
    rows = np.flatnonzero(digits.y < 2)[:10]
    pixels = digits.images.__getitems__(rows.tolist())["images"].numpy()
    found, _ = run(zoo, tmp_path, data=(pixels, digits.y[rows]))
    low, high = found.answer.result.interval
    assert high - low > 0.4 and any("to learn from are few" in note for note in found.notes)


def test_a_network_that_was_pretrained_on_the_held_back_images_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    for number in range(24):
        (folder / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (28, 28), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "ab"[number % 2] / f"{number}.png")
    entry = ZooEntry.load(random_entries.made(tmp_path / "other", "b", str(folder), images=24))
    update(entry, data={**entry.card["data"], "content": sslkit.open_images(folder).content_digest})
    found, _ = run(tmp_path / "other", tmp_path, data=str(folder))
    assert "saw these images in its pretraining" in found.seen and found.seen in found.notes


def test_methods_that_learn_from_labels_are_refused(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="methods=supervised learns from labels"):
        run(zoo, tmp_path, methods=["supervised"])


def test_no_network_at_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.solving.candidates.ready_made", list)
    with pytest.raises(UserError, match="there is no network to try: give zoo="):
        run(None, tmp_path)


def test_a_budget_for_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.solving.candidates.ready_made", list)
    with pytest.raises(UserError, match=r"no network fits into budget=1s \(byol here: too few epochs fit\)"):
        run(None, tmp_path, methods=["byol"], budget="1s")


def test_the_page_and_the_file_say_what_the_terminal_says(solution: Solution, tmp_path: Path) -> None:
    page = output.write_page(solution, tmp_path / "solution.html").read_text()
    content = json.loads(output.write_json(solution, tmp_path / "solution.json").read_text())
    assert content["decision"] == str(solution.decision) and content["taken"] == ""
    assert "take none" in page and "The surest mistakes" in page and page.count("<figure>") == output.MISTAKES
    assert all(str(judged) in page and str(judged) in output.table(solution) for judged in solution.judged)
    assert "http" not in page.replace("http-equiv", "")


def test_without_labels_networks_are_compared_by_finding_views(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = open_problem("digits", Reading(cache=tmp_path), 0).held_back.images.__getitems__(list(range(200)))[
        "images"
    ]
    best, said = run(zoo, tmp_path, data=pixels)
    assert [result.model for result in best.results] == ["net0", "net1", "pixels", f"random:{best.decision.first.name}"]
    assert {result.protocol for result in best.results} == {"view_retrieval"} and best.results[0].n == 40
    assert best.checkpoint in (str(zoo / "net0"), str(zoo / "net1")) and "no image has a label" in said[0]
    monkeypatch.setattr("evaluation.solving.unlabelled.measure", lambda *_: pytest.fail("a stage was done again"))
    again, _ = run(zoo, tmp_path, data=pixels)
    assert [result.value for result in again.results] == [result.value for result in best.results]
    assert str(again.decision) == str(best.decision)


def test_a_folder_has_one_process_at_a_time(zoo: Path, tmp_path: Path) -> None:
    with own_folder(tmp_path / "digits", "solve into"), pytest.raises(UserError, match=r"solve into .*digits: wait"):
        run(zoo, tmp_path)


def write_table(folder: Path, count: int) -> Path:
    """Digits with a table of their ink, the mean grey of each; the first has none."""
    images = sslkit.open_images("digits")
    rows = ["path,ink"]
    for row in range(count):
        picture = images[row]["images"][0].numpy()
        Image.fromarray(picture).save(folder / f"{row:03}.png")
        rows.append(f"{row:03}.png,{'' if row == 0 else 500 + picture.mean()}")
    (folder / "list.csv").write_text("\n".join(rows))
    return folder / "list.csv"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tune", [False, True])
def test_numbers_are_solved_by_the_same_way(
    tune: bool, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "MOST_EPOCHS", 1)
    columns = {"label": "ink", "label_kind": "number"}
    data = write_table(tmp_path, 80)
    solution, _ = run([str(zoo / "net0")], tmp_path, data, columns=columns, tune=tune)
    held_back, result = solution.problem.held_back, solution.answer.result
    numbers = sslkit.load(solution.entry.folder).predict(held_back.images).values[:, 0]
    assert result.value == pytest.approx(r2_score(held_back.y, numbers), abs=1e-3) and result.metric == "r2"
    assert solution.entry.classifier().half_widths == pytest.approx((solution.answer.half,))
    assert solution.controls[0].value > 0.99 and solution.decision.taken == ""  # ink is the mean of the pixels
    assert len(solution.judged) == 1 + tune and solution.problem.count_unlabelled() == 1
    said = "\n".join(output.lines(solution))
    assert "root mean square error" in said and "split conformal" in said and "calibration" not in said
    page = output.write_page(solution, tmp_path / "page.html").read_text()
    assert "The largest errors" in page and "predicted 5" in page


@pytest.mark.filterwarnings("ignore")
def test_too_few_numbers_are_one_line(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 8 images with a number, and at least 10 are needed"):
        run(zoo, tmp_path, write_table(tmp_path, 9), columns={"label": "ink", "label_kind": "number"})
