"""Two tasks of our own for AppWorld's engine, written into a folder by the Python that has `appworld` installed.

    PYTHON appworld_tasks.py FOLDER

One asks for what a note says; the other for a note to be written and nothing else to be touched.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from appworld import update_root
from appworld.apps import get_all_apps
from appworld.collections.api_docs import ApiDocCollection
from appworld.collections.models import ModelCollection
from appworld.common.constants import DB_VERSION

OWNER = {"first_name": "Ada", "last_name": "Byron", "email": "ada@example.com", "phone_number": "5550100100"}
PASSWORD = "analytical"
CODE = "K7421"

TASKS = {
    "own_1": (
        "What is the code of my garage? I wrote it into a note.",
        CODE,
        ["the answer is right", "nothing was changed"],
        """
def evaluate(test, models, public_data, private_data, ground_truth_answer, main_user):
    with test("the answer is right"):
        test.answer(models.end.supervisor.Task.all()[0].answer.strip('"'), ground_truth_answer)
    with test("nothing was changed"):
        test.case(models.changed_model_names(ignore=["simple_note.User"]), "==", set())
""",
    ),
    "own_2": (
        "Write a note titled Packing that says: two coats.",
        None,
        ["the note is there", "nothing else was changed"],
        """
def evaluate(test, models, public_data, private_data, ground_truth_answer, main_user):
    with test("the note is there"):
        test.case([note.content for note in models.end.simple_note.Note.find_all(title="Packing")], "==", ["two coats"])
    with test("nothing else was changed"):
        added, changed, removed = models.changed_records("simple_note.Note")
        test.case([len(added), len(changed), len(removed)], "==", [1, 0, 0])
        test.case(models.changed_model_names(ignore=["simple_note.User"]), "==", {"simple_note.Note"})
""",
    ),
}


def write(name: str, data: Path) -> None:
    """One task: databases, what is asked, and how it is judged."""
    instruction, answer, requirements, evaluation = TASKS[name]
    task = data / "tasks" / name
    truth = task / "ground_truth"
    truth.mkdir(parents=True)
    apps = [*get_all_apps(skip_admin=True), "admin"]
    models = ModelCollection.load(to_db_home_path=f":memory:{name}", load_apps=apps, create_db=True)
    born = {**OWNER, "birthday": "1990-12-10", "sex": "female"}
    models.admin.MainUser.create(**born).save()
    supervisor = models.supervisor.Supervisor.create(**born)
    supervisor.save()
    models.supervisor.AccountPassword.create(
        supervisor_id=supervisor.id, account_name="simple_note", password=PASSWORD
    ).save()
    models.supervisor.Task.create(supervisor_id=supervisor.id, instruction=instruction).save()
    named = {key: OWNER[key] for key in ("first_name", "last_name", "email")}
    user = models.simple_note.User.create(**named, password=PASSWORD, verified=True)
    user.save()
    models.simple_note.Note.create(user_id=user.id, title="Garage", content=f"The code is {CODE}.").save()
    models.save(str(task / "dbs"), app_names=apps, save_model_hashes=True)
    models.close()
    specs = {"instruction": instruction, "supervisor": OWNER, "datetime": "2023-05-18T12:00:00"}
    (task / "specs.json").write_text(json.dumps({**specs, "db_version": DB_VERSION}))
    for file, what in {
        "metadata": {"difficulty": 1, "mode": "minimal", "num_apps": 1, "num_apis": 1, "num_solution_code_lines": 1},
        "public_data": {},
        "private_data": {},
        "answer": answer,
        "test_data": [{"requirement": one, "label": "no_op_fail"} for one in requirements],
    }.items():
        (truth / f"{file}.json").write_text(json.dumps(what))
    (truth / "evaluation.py").write_text(evaluation)


def document(folder: Path) -> None:
    """The descriptions of all calls, which otherwise come with the download."""
    folder.mkdir(parents=True)
    for app, calls in ApiDocCollection.build(tuple(get_all_apps(skip_admin=True))).items():
        told = {name: {**call, "canary_string": ""} for name, call in calls.items()}
        (folder / f"{app}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    root = Path(sys.argv[1]).resolve()
    update_root(str(root))
    for each in TASKS:
        write(each, root / "data")
    document(root / "data" / "api_docs" / "standard")
    (root / "data" / "datasets").mkdir()
    (root / "data" / "datasets" / "dev.txt").write_text("\n".join(TASKS) + "\n")
