"""Action recognition with a video backbone: a linear head on Kinetics-400, or fine-tuning on UCF101 and HMDB51.

python recipes/action_eval.py checkpoint=runs/zoo/NAME data=video:FOLDER protocol=linear
python recipes/action_eval.py checkpoint=runs/zoo/NAME data=video:FOLDER protocol=linear features=once   (small sets)
python recipes/action_eval.py checkpoint=runs/zoo/NAME data=video:FOLDER protocol=fine_tune epochs=10
python recipes/action_eval.py checkpoint=runs/zoo/NAME recipe=paper_k400 root=data
python recipes/action_eval.py checkpoint=runs/zoo/NAME recipe=paper_ucf101 root=data    (its three splits, their mean)

Recipes: paper_k400, paper_ucf101, paper_hmdb51, slowfast_ucf101, slowfast_hmdb51; see
evaluation/tasks/action/recipes.py.
FOLDER holds train/CLASS/VIDEO and test/CLASS/VIDEO. The same command goes on where it was stopped;
features=once extracts its features again.
"""

from dataclasses import dataclass

from evaluation.judging.command_line import Output, Subjects, run_alone, settings_of

from evaluation.tasks.action.options import SHARED, Options
from sslkit.options.settings import setting


@dataclass
class Data(Subjects):
    data: str | None = setting(
        None, "video:FOLDER, kinetics400, ucf101, hmdb51, NAME:ROOT; null: the recipe's or the entry's"
    )


SETTINGS = settings_of(Data, Options, Output, shared=SHARED)

if __name__ == "__main__":
    run_alone(lambda config: "action", SETTINGS, __doc__)
