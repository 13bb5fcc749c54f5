"""From files and words to a Recipe, with every problem at once."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.rec.config.folder import ResolveContext, find_config
from paddock.rec.config.keys import BadValue, value_of
from paddock.rec.config.resolve import resolve
from paddock.rec.settings import EngineKind, ModelKind, Task
from rec.config.conftest import FLUID, HOOKS, TWO, Bench

OLD = """
train:
  engine: local_cluster
  workspace: "../hooks"
  epochs: 10
  trainer: {strategy: geo, threads: 3}
  strategy: {mode: {push_num: 50}}
  reader:
    batch_size: 2
    class: "{workspace}/reader.py"
    train_data_path: "{workspace}/data"
    sparse_slots: "click 1 2"
    dense_slots: "dense_var:13 image:3,8"
  model:
    models: "{workspace}/model.py"
    hyper_parameters: {rows: 7}
  save: {increment: {dirname: inc, epoch_interval: 2, save_last: true}}
evaluate:
  workspace: "../hooks"
  reader: {batch_size: 5, test_data_path: "{workspace}/test_data"}
"""
LISTS = """
workspace: ../hooks
mode: [train_it, judge_it]
hyper_parameters: {rows: 3}
dataset:
- {name: big, batch_size: 8, data_path: "{workspace}/data", data_converter: "{workspace}/reader.py"}
- {name: small, batch_size: 4, data_path: "{workspace}/test_data", sparse_slots: "click a"}
runner:
- {name: unused, class: no_such_class, epochs: x}
- name: train_it
  class: local_cluster_train
  epochs: 2
  server_num: 2
  worker_num: 3
  save_checkpoint_interval: 1
  save_checkpoint_path: inc
  phases: [one]
- {name: judge_it, class: infer, phases: two, init_model_path: ""}
phase:
- {name: one, model: "{workspace}/model.py", dataset_name: big, thread_num: 2}
- {name: two, model: "{workspace}/model.py", dataset_name: small}
"""


def test_a_folder_of_2x_is_read_with_data_relative_to_its_file(bench: Bench) -> None:
    """As tools/trainer.py reads it, from wherever it is started."""
    recipe = bench.resolve("-m", "two")
    (run,) = recipe.runs
    assert recipe.engine is EngineKind.SINGLE
    assert run.contract is ModelKind.DYGRAPH
    assert run.reading is not None
    assert run.reading.paths == (str(bench.root / "two/data"),)
    assert run.reading.reader == str(bench.root / "two/my_reader.py")
    assert run.config["runner.epochs"] == 3
    assert run.config["config_abs_dir"] == str(bench.root / "two")
    assert run.saving.directory == "model_output"
    assert recipe.sources["train.epochs"] == "two/config.yaml:6"
    assert recipe.warnings == ()


def test_a_path_that_a_model_opens_itself_is_found_in_its_folder(bench: Bench) -> None:
    """Models were started in their folder, and open files by names relative to it."""
    bench.put({"here/": ""})
    words = ("dictionary=./data/part-0", "other=here/part-0", "none=no/such", "mode=data")
    run = bench.resolve("-m", "two", "-o", *(f"runner.{word}" for word in words)).runs[0]
    found = [run.config[f"runner.{word.partition('=')[0]}"] for word in words]
    assert found == [str(bench.root / "two/data/part-0"), "here/part-0", "no/such", "data"]


def test_without_a_batch_size_a_data_set_of_2x_makes_the_batches(bench: Bench) -> None:
    """As DataLoader(batch_size=None) has it; it may be forgotten, too, so a line says it."""
    bench.put({"two/config.yaml": TWO.replace("  train_batch_size: 2\n", "")})
    recipe = bench.resolve("-m", "two")
    assert recipe.runs[0].reading is not None and recipe.runs[0].reading.batch_size == 0
    assert "an item of RecDataset is a batch" in " ".join(recipe.warnings)


def test_words_of_2x_change_several_keys_after_one_o(bench: Bench) -> None:
    """python -u tools/trainer.py -m config.yaml -o runner.epochs=1 runner.use_gpu=true."""
    run = bench.resolve("-m", "two", "-o", "runner.epochs=1", "runner.use_gpu=true").runs[0]
    assert (run.epochs, run.device) == (1, "gpu")
    assert run.config["runner.epochs"] == 1


def test_a_short_word_of_o_means_the_same_in_every_form(bench: Bench) -> None:
    """Nobody has to know of which age his file is."""
    bench.put({"old/config.yaml": OLD, "lists/config.yaml": LISTS})
    for model in ("two", "old", "lists"):
        recipe = bench.resolve("-m", model, "-o", "epochs=9", "-o", "server_num=4",
                               "engine=local_cluster", "seed=1")  # fmt: skip
        assert (recipe.runs[0].epochs, recipe.runs[0].seed) == (9, 1), model
        assert (recipe.engine, recipe.cluster.servers) == (EngineKind.LOCAL_CLUSTER, 4), model


def test_a_word_of_ours_works_where_the_form_has_another_key_for_it(bench: Bench) -> None:
    """-o strategy=async was a warning, and the job was sync: 2.x calls it runner.sync_mode."""
    bench.put({"lists/config.yaml": LISTS})
    words = ("strategy=async", "save_dir=kept", "threads=3", "warm_start=two/data")
    for model in ("two", "lists"):
        recipe = bench.resolve("-m", model, "-o", *words)
        run = recipe.runs[0]
        assert (run.strategy.name, run.strategy.threads) == ("async", 3), model
        assert str(run.saving.directory).endswith("kept"), model
        assert str(run.warm_start).endswith("two/data"), model
        assert not [told for told in recipe.warnings if "nothing reads" in told], model


def test_a_hyper_parameter_of_the_file_is_its_last_word_in_o(bench: Bench) -> None:
    """-o learning_rate=0.01 trained with the file's: "did you mean 'runner.engine'?"."""
    bench.put({"old/config.yaml": OLD})
    recipe = bench.resolve("-m", "old", "-o", "rows=8")
    assert (recipe.runs[0].hyper["rows"], recipe.warnings) == (8, ())
    recipe = bench.resolve("-m", "paddlerec.models.rank.dnn", "-o", "learning_rate=0.5", "lr=1")
    assert recipe.runs[0].hyper["optimizer"] == {"class": "Adam", "learning_rate": 0.5}
    (warning,) = recipe.warnings
    assert warning.endswith("nothing reads runner.lr; leave it out")
    (warning,) = bench.resolve("-m", "two", "-o", "runner.rowz=8").warnings
    assert warning.endswith("did you mean 'hyper_parameters.rows'?")


def test_a_word_of_ours_in_the_file_is_told_the_key_of_its_form(bench: Bench) -> None:
    """The hint was the key itself."""
    bench.put({"two/config.yaml": TWO.replace("epochs: 3", "epochs: 3\n  save_dir: kept")})
    (warning,) = bench.resolve("-m", "two").warnings
    assert warning.endswith("nothing reads runner.save_dir; write runner.model_save_path")


def test_the_first_form_trains_and_then_judges(bench: Bench) -> None:
    """Its evaluation walks every saved checkpoint."""
    bench.put({"old/config.yaml": OLD})
    recipe = bench.resolve("-m", "old/config.yaml")
    train, judge = recipe.runs
    assert recipe.engine is EngineKind.LOCAL_CLUSTER
    assert (train.task, judge.task) == (Task.TRAIN, Task.EVALUATE)
    assert (train.strategy.name, train.strategy.geo_step, train.strategy.threads) == ("geo", 50, 3)
    assert train.reading is not None
    assert train.reading.sparse_slots == ("click", "1", "2")
    assert train.reading.dense_slots == {"dense_var": 13, "image": 24}
    assert train.hyper == {"rows": 7}
    assert judge.test is not None
    assert (judge.test.batch_size, judge.test.sparse_slots) == (5, ("click", "1", "2"))
    assert judge.evaluate_from == "inc"


def test_the_lists_of_185_are_run_in_the_order_of_mode(bench: Bench) -> None:
    """A runner that mode does not name may be as wrong as it likes."""
    bench.put({"lists/config.yaml": LISTS})
    recipe = bench.resolve("-m", "lists")
    train, judge = recipe.runs
    assert (train.name, judge.name) == ("train_it", "judge_it")
    assert (recipe.cluster.servers, recipe.cluster.workers) == (2, 3)
    assert recipe.engine is EngineKind.LOCAL_CLUSTER
    assert train.contract is ModelKind.HOOKS
    assert (train.epochs, train.saving.directory, train.saving.every_epochs) == (2, "inc", 1)
    assert judge.evaluate_from == "inc"  # what was trained before it
    assert judge.test is not None
    assert judge.test.reader == "slots"
    assert recipe.warnings == ()


def test_evaluate_judges_and_trains_nothing(bench: Bench) -> None:
    """In every form, with the same word."""
    bench.put({"old/config.yaml": OLD, "lists/config.yaml": LISTS})
    more = "epochs: 3\n  test_data_dir: data\n  infer_load_path: out\n  infer_end_epoch: 2"
    bench.put({"two/config.yaml": TWO.replace("epochs: 3", more)})
    for model in ("two", "old", "lists"):
        (run,) = bench.resolve("-m", model, "--evaluate").runs
        assert run.task is Task.EVALUATE, model
    (run,) = bench.resolve("-m", "two", "--evaluate").runs
    assert (run.evaluate_from, run.evaluate_epochs) == ("out", (0, 2))


@pytest.mark.parametrize("name", ["paddlerec.models.rank.dnn", "paddock.models.rank.dnn"])
def test_a_dotted_name_is_a_bundled_model(bench: Bench, name: str) -> None:
    """The first thing a new user types."""
    run = bench.resolve("-m", name).runs[0]
    assert (run.contract, run.framework, run.epochs) == (ModelKind.BUNDLED, "torch", 4)
    assert run.reading is not None
    assert run.reading.reader == "criteo"
    assert run.hyper["fc_sizes"] == [512, 256]


def test_an_unknown_dotted_name_is_told_the_nearest(bench: Bench) -> None:
    """A name is easily mistyped."""
    for word in ("paddlerec.models.rank.dmn", "rank.dnn", "dnn", "paddlerec.dnn"):
        assert "did you mean 'paddlerec.models.rank.dnn'?" in bench.problems("-m", word), word
    for word in ("paddlerec.models.multitask.esmm", "paddlerec.models", "esmm"):
        assert "bundled are paddlerec.models.rank.dnn" in bench.problems("-m", word), word


def test_a_file_about_a_bundled_model_may_say_a_few_keys_only(bench: Bench) -> None:
    """The page of PaddleRec's distributed training shows no more than this."""
    bench.put({"mine/config.yaml": """
        train:
          epochs: 10
          engine: local_cluster
          workspace: "paddlerec.models.rank.dnn"
          trainer:
            strategy: "async"
            threads: 2
        """})  # fmt: skip
    recipe = bench.resolve("-m", "mine/config.yaml")
    (run,) = recipe.runs
    assert (run.epochs, run.contract, run.framework) == (10, ModelKind.BUNDLED, "torch")
    assert run.reading is not None
    assert (run.reading.batch_size, run.reading.reader) == (512, "criteo")
    assert run.reading.paths == (str(bench.world.models / "rank/dnn/data"),)
    assert run.hyper["optimizer"] == {"class": "Adam", "learning_rate": 0.001}
    assert (recipe.engine, run.strategy.name) == (EngineKind.LOCAL_CLUSTER, "async")


def test_a_mapping_takes_the_place_of_a_bundled_models_number(bench: Bench) -> None:
    """Of one word or of a list; it is the model that says what it makes of it."""
    for name, inner in {"sparse_feature_dim": "a", "fc_sizes": "b"}.items():
        bench.put({"mine/config.yaml": f"""
            train:
              workspace: "paddlerec.models.rank.dnn"
              model: {{hyper_parameters: {{{name}: {{{inner}: 2}}}}}}
            """})  # fmt: skip
        (run,) = bench.resolve("-m", "mine/config.yaml").runs
        assert run.hyper[name] == {inner: 2}


def test_who_says_what_to_judge_by_is_not_judged_by_other_data(bench: Bench) -> None:
    """The bundled model's own test data would give a second AUC, of other examples.

    Where nothing is saved the model that was trained is judged, not one that begins anew.
    """
    bench.put({"clicks/part-0": "click:1 1:2"})
    text = """
        train:
          workspace: "paddlerec.models.rank.dnn"
          SAVE
        evaluate:
          reader: {test_data_path: clicks}
        """
    wanted = (str(bench.world.path("clicks")),)
    bench.put({"mine/config.yaml": text.replace("SAVE", "save: {increment: {dirname: out}}")})
    trains, judges = bench.resolve("-m", "mine/config.yaml").runs
    assert trains.test is None
    assert judges.test is not None
    assert (judges.test.paths, judges.evaluate_from) == (wanted, "out")
    bench.put({"mine/config.yaml": text.replace("SAVE", "")})
    (run,) = bench.resolve("-m", "mine/config.yaml").runs
    assert run.test is not None
    assert run.test.paths == wanted


@pytest.mark.parametrize("form", ["two", "old", "lists", "mine"])
def test_the_same_two_words_name_data_in_every_form(bench: Bench, form: str) -> None:
    """Of 0.1 they were a warning, and the package's own data were trained on."""
    bench.put({"clicks/part-0": "click:1 1:2", "held/part-0": "click:1 1:2"})
    bench.put({"old/config.yaml": OLD, "lists/config.yaml": LISTS, "mine/config.yaml": """
        train:
          workspace: "paddlerec.models.rank.dnn"
        """})  # fmt: skip
    form += "/config.yaml"
    places = (("train_data_dir", "clicks"), ("test_data_dir", "held"))
    said = [f"{word}={bench.world.path(path)}" for word, path in places]
    # What 2.x trains it judges afterwards, by another command.
    more = ["--evaluate"] if form.startswith("two") else []
    runs = bench.resolve("-m", form, "-o", *said).runs
    runs += bench.resolve("-m", form, "-o", *said, *more).runs
    trained = [run.reading.paths for run in runs if run.task is Task.TRAIN and run.reading]
    judged = {run.test.paths for run in runs if run.test}
    assert trained
    assert set(trained) == {(str(bench.world.path("clicks")),)}
    assert judged == {(str(bench.world.path("held")),)}
    for word in ("train_data_dir", "test_data_dir"):
        words = ("-m", form, "-o", f"{word}=/nowhere", *(more if word.startswith("test") else ()))
        assert "/nowhere does not exist" in bench.problems(*words)


def test_data_that_nobody_reads_are_an_error_where_they_are_named_by_hand(bench: Bench) -> None:
    """Others would be trained on. In a file, where much is left over, it is a warning."""
    bench.put(
        {
            "mine/config.yaml": """
        train:
          workspace: "paddlerec.models.rank.dnn"
          old_data: x
        """
        }
    )
    assert "nothing reads train.old_data" in " ".join(
        bench.resolve("-m", "mine/config.yaml").warnings
    )
    words = ("-m", "mine/config.yaml", "-o", "data_files=x", "train_data_pth=y", "speed=3")
    assert bench.problems(*words).splitlines() == [
        "-o train.data_files: nothing reads train.data_files | "
        "write -o train_data_dir=..., or test_data_dir=...",
        "-o train.train_data_pth: nothing reads train.train_data_pth | "
        "did you mean 'train.reader.train_data_path'?",
    ]
    told = bench.resolve("-m", "mine/config.yaml", "-o", "print_interval=5").warnings
    (warning,) = [text for text in told if "print_interval" in text]
    assert "did you mean" not in warning, "epoch_interval is another thing, that ends alike"


def test_a_misspelt_workspace_is_one_problem(bench: Bench) -> None:
    """That the directory beside the file has no model follows from it, and its hint misled."""
    bench.put({"mine/config.yaml": "runner:\n  workspace: paddlerec.models.rank.dn\n"})
    assert bench.problems("-m", "mine/config.yaml").splitlines() == [
        "mine/config.yaml:2: workspace 'paddlerec.models.rank.dn' is not there | "
        "did you mean 'paddlerec.models.rank.dnn'?"
    ]


@pytest.mark.parametrize("names", [["test_rows"], ["test_rows", "day", "week", "all", "none"]])
def test_a_name_of_1_8_is_told_the_near_one_of_however_many(bench: Bench, names: list[str]) -> None:
    """One of a list of one was "choose one of test_rows", as if nothing were like it."""
    data = "".join(f"- {{name: {name}, batch_size: 4, data_path: x}}\n" for name in names)
    text = (
        f"mode: [go]\nworkspace: ../hooks\ndataset:\n{data}runner:\n- {{name: go, phases: [one]}}\n"
        'phase:\n- {name: one, model: "{workspace}/model.py", dataset_name: train_rows}\n'
    )
    bench.put({"mine/config.yaml": text})
    assert (
        bench.problems("-m", "mine/config.yaml")
        .splitlines()[0]
        .endswith(
            "phase 'one' names dataset 'train_rows', which is not there | did you mean 'test_rows'?"
        )
    )


@pytest.mark.parametrize("wrong", ["train_data_dri", "train.train_data_dir"])
def test_the_hint_about_data_that_nobody_reads_is_a_word_that_works(
    bench: Bench, wrong: str
) -> None:
    """It named train.train_data_dir, which no file of 0.1 has, and which was refused in turn."""
    bench.put({"mine/config.yaml": 'train:\n  workspace: "paddlerec.models.rank.dnn"\n'})
    hint = bench.problems("-m", "mine/config.yaml", "-o", f"{wrong}=y").rpartition(" | ")[2]
    word = re.sub("did you mean '|'\\?|write ", "", hint)
    told = bench.problems("-m", "mine/config.yaml", "-o", f"{word}=/nowhere")
    assert "/nowhere does not exist" in told, hint


@pytest.mark.parametrize("model", ["mine/config.yaml", "paddlerec.models.rank.dnn"])
def test_a_model_of_ones_own_data_is_not_judged_by_the_package(bench: Bench, model: str) -> None:
    """Their AUC on generated data was printed, with the best possible one beside it."""
    bench.put({"clicks/part-0": "click:1 1:2", "mine/config.yaml": """
        train:
          workspace: "paddlerec.models.rank.dnn"
          reader: {train_data_path: clicks}
        """})  # fmt: skip
    words = [] if model.endswith("yaml") else ["-o", "train_data_dir=clicks"]
    (run,) = bench.resolve("-m", model, *words).runs
    assert run.test is None
    own = "train_data_dir=generated:criteo?examples=9"
    for said in ([own], ["test_data_dir=clicks"], ["test_data_dir=clicks", own]):
        (run,) = bench.resolve("-m", "paddlerec.models.rank.dnn", "-o", *said).runs
        assert run.test is not None, said


def test_files_that_a_bundled_model_lacks_are_its_own_ones(bench: Bench) -> None:
    """The 0.1 file names a reader of the package, which ours has as a format."""
    bench.put({"mine/config.yaml": """
        train:
          workspace: "paddlerec.models.rank.dnn"
          reader:
            class: "{workspace}/../criteo_reader.py"
            train_data_path: "{workspace}/data/train"
            batch_size: 2
          model:
            models: "{workspace}/model.py"
            hyper_parameters: {fc_sizes: [4], learning_rate: 0.5, optimizer: adam}
        """})  # fmt: skip
    recipe = bench.resolve("-m", "mine/config.yaml")
    (run,) = recipe.runs
    assert run.reading is not None
    assert (run.reading.reader, run.reading.batch_size) == ("criteo", 2)
    assert run.hyper["fc_sizes"] == [4]
    assert run.hyper["optimizer"] == {"class": "adam", "learning_rate": 0.5}
    assert "learning_rate" not in run.hyper  # It would be told as not read.
    assert [w.partition(": ")[2] for w in recipe.warnings] == [
        "the bundled model has no train; data is used".replace(
            "data is", f"{bench.world.models / 'rank/dnn/data'} is"
        ),
        "the bundled model has no criteo_reader.py; criteo is used",
    ]


def test_all_problems_are_told_at_once_with_their_lines(bench: Bench) -> None:
    """One run of the command is enough to mend a file."""
    bench.put({"two/config.yaml": """
        runner:
          train_data_dir: dada
          train_reader_path: my_raeder
          train_batch_size: 0
          epochs: many
          use_gpu: perhaps
          sync_mode: gpubox
        hyper_parameters:
          fc_sizes: ${SIZES}
        """})  # fmt: skip
    told = bench.problems("-m", "two")
    for line in (
        "runner.train_data_dir: ROOT/two/dada does not exist | did you mean 'data'?",
        "two/config.yaml:4: there is no reader 'my_raeder' | did you mean 'my_reader'?",
        "two/config.yaml:5: runner.train_batch_size is 0: less than 1",
        "two/config.yaml:6: runner.epochs is 'many': not a number",
        "two/config.yaml:7: runner.use_gpu is 'perhaps': neither true nor false",
        "two/config.yaml:8: runner.sync_mode is 'gpubox': embeddings in GPU memory",
        "two/config.yaml:10: the variable SIZES is not set | export SIZES=...",
    ):
        assert line.replace("ROOT", str(bench.root)) in told, told


def test_variables_are_put_in_where_the_command_is_given(bench: Bench) -> None:
    """The worker looks its own up."""
    bench.env["PLACE"] = "data"
    bench.put({"two/config.yaml": TWO.replace("train_data_dir: data", "train_data_dir: ${PLACE}")})
    reading = bench.resolve("-m", "two").runs[0].reading
    assert reading is not None
    assert reading.paths == (str(bench.root / "two/data"),)


def test_a_key_that_nothing_reads_is_a_warning_with_the_nearest(bench: Bench) -> None:
    """Neither ours nor the model's: a model may read any key of its own."""
    text = TWO.replace("epochs: 3", "epochs: 3\n  epoch: 4\n  own_key: 5")
    bench.put({"two/config.yaml": text, "two/net.py": "x = config.get('runner.own_key')\n"})
    (warning,) = bench.resolve("-m", "two").warnings
    assert warning == "two/config.yaml:7: nothing reads runner.epoch; did you mean 'runner.epochs'?"


def test_a_model_of_fluid_is_refused_with_lines_and_what_to_write(bench: Bench) -> None:
    """It is parsed, never imported."""
    bench.put({"lists/config.yaml": LISTS, "hooks/model.py": FLUID})
    told = bench.problems("-m", "lists")
    assert "hooks/model.py:4: import of paddle.fluid cannot run | write it in dygraph" in told
    assert "hooks/model.py:10: fluid.embedding cannot run | paddle.nn.Embedding" in told
    assert "hooks/model.py:11: fluid.layers.fc cannot run | paddle.nn.Linear" in told


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("import paddle.fluid as fluid", ""),  # Some do, and use nothing of it.
        ("import paddle.fluid\nkind = paddle.fluid.core.VarDesc.VarType.FP16", ""),
        ("from paddle import fluid\nx = fluid.layers.gather(x, at)", ""),
        ("import paddle.fluid as F\nx = F.layers.fc(x, 2)", "net.py:2: F.layers.fc cannot run"),
        ("x = paddle.fluid.layers.fc(x, 2)", "net.py:1: paddle.fluid.layers.fc cannot run"),
        ("import paddle.fluid.layers as L", "net.py:1: import of paddle.fluid.layers cannot run"),
    ],
)
def test_a_2x_model_may_say_of_fluid_what_there_is(bench: Bench, said: str, refused: str) -> None:
    """Their own folders of 2.0 to 2.4 do."""
    bench.put({"two/net.py": said, "two/dygraph_model.py": "import net\nclass DygraphModel: pass"})
    if refused:
        assert refused in bench.problems("-m", "two")
    else:
        assert bench.resolve("-m", "two").runs[0].contract is ModelKind.DYGRAPH


def test_a_2x_model_may_name_the_static_graph_in_branches(bench: Bench) -> None:
    """PaddleRec's own net.py do, for a mode that dygraph never takes."""
    assert bench.resolve("-m", "two").runs[0].contract is ModelKind.DYGRAPH


def test_a_model_without_its_class_is_told_the_nearest(bench: Bench) -> None:
    """The loader would say it with a traceback."""
    bench.put({"lists/config.yaml": LISTS, "hooks/model.py": HOOKS.replace("Model(", "Modle(")})
    assert "hooks/model.py has no class Model | did you mean 'Modle'?" in bench.problems(
        "-m", "lists"
    )


def test_tree_models_and_unknown_engines_are_refused(bench: Bench) -> None:
    """With what there is."""
    told = bench.problems("-m", "two", "-o", "engine=tdm_cluster")
    assert "tree-based deep match is not supported" in told
    assert "did you mean 'local_cluster'?" in bench.problems("-m", "two", "-o", "engine=local_cl")
    known = "choose one of single, local_cluster, cluster"
    assert bench.problems("-m", "two", "-o", "engine=moon").endswith(known)


def test_another_word_for_a_known_one_is_told_once() -> None:
    """pslib is a way to say ps, and one of the words."""
    with pytest.raises(BadValue) as caught:
        value_of("fleet_mode", "moon")
    assert caught.value.args[1] == "choose one of ps, pslib, collective"


def test_a_file_of_no_form_says_which_keys_it_has(bench: Bench) -> None:
    """It may be another program's."""
    bench.put({"other.yaml": "services: {}\nversion: 3\n"})
    told = bench.problems("-m", "other.yaml")
    assert "other.yaml is of no known form; its keys are services, version" in told


def test_a_cluster_without_a_backend_is_refused_before_anything_starts(bench: Bench) -> None:
    """PaddleRec crashed opening None."""
    told = bench.problems("-m", "two", "-o", "engine=cluster")
    assert "engine cluster needs a backend.yaml | add -b backend.yaml" in told
    assert bench.resolve("-m", "two", "-o", "engine=cluster", "-r", "WORKER").runs


def test_an_empty_directory_of_data_is_told_here(bench: Bench) -> None:
    """Every worker would wait for nothing."""
    (bench.root / "two/data/part-0").unlink()
    assert "two/data is an empty directory" in bench.problems("-m", "two")


def test_data_for_a_bundled_model_is_looked_for_where_the_command_is_typed(bench: Bench) -> None:
    """It was looked for in the package: `-o train_data_dir=clicks` never found one's own."""
    bench.put({"clicks/": ""})
    words = ("-m", "paddlerec.models.rank.dnn", "-o", "train_data_dir=clicks")
    reading = bench.resolve(*words).runs[0].reading
    assert reading is not None
    assert reading.paths == (str(bench.root / "clicks"),)
    words = (*words[:-1], "train_data_dir=nowhere")
    assert f"{bench.root}/nowhere does not exist" in bench.problems(*words)


def test_a_key_that_is_a_number_is_a_key(bench: Bench) -> None:
    """`-o days={20191001}` without quotes is a table in YAML, and was a traceback."""
    recipe = bench.resolve("-m", "two", "-o", "runner.mine={20191001}")
    assert any("runner.mine" in warning for warning in recipe.warnings)


def test_several_devices_make_a_job_without_servers(bench: Bench) -> None:
    """selected_gpus of 1.8.5: a process for each."""
    more = 'class: train\n  device: gpu\n  selected_gpus: "0,1"'
    text = LISTS.replace("class: local_cluster_train", more)
    text = text.replace("  server_num: 2\n  worker_num: 3\n", "")
    bench.put({"lists/config.yaml": text})
    recipe = bench.resolve("-m", "lists")
    assert (recipe.engine, recipe.cluster.servers, recipe.cluster.workers) == (
        EngineKind.LOCAL_CLUSTER, 0, 2,
    )  # fmt: skip


def test_a_workspace_that_is_no_text_is_one_of_the_problems(bench: Bench) -> None:
    """Found by mutated files: the folder was looked for in no directory."""
    bench.put({"old/config.yaml": "train: {workspace: false}", "old/model.py": HOOKS})
    assert "old/config.yaml:1: workspace is no text" in bench.problems("-m", "old")


def test_data_of_ones_own_is_read_as_the_named_reader_read_it(bench: Bench) -> None:
    """The 0.1 reader of the package was for raw Criteo lines; generated ones are slots."""
    base = bench.world.models / "rank/dnn/config.yaml"
    base.write_text(base.read_text("utf-8").replace("criteo", "slots"))
    text = """
        train:
          workspace: "paddlerec.models.rank.dnn"
          reader: {class: "{workspace}/../criteo_reader.py", train_data_path: DATA}
        """
    for data, reader in (("mine/rows", "criteo"), ('"{workspace}/data/train"', "slots")):
        bench.put({"mine/config.yaml": text.replace("DATA", data), "mine/rows/": ""})
        reading = bench.resolve("-m", "mine/config.yaml").runs[0].reading
        assert reading is not None
        assert reading.reader == reader


def test_inside_of_paddlecloud_no_backend_is_asked_for(bench: Bench) -> None:
    """Its start command has no -r; a variable says it."""
    bench.env["PADDLE_PADDLEREC_ROLE"] = "WORKER"
    assert bench.resolve("-m", "two", "-o", "engine=cluster").engine is EngineKind.CLUSTER


@pytest.mark.parametrize(("old", "new", "told"), [
    ("phases: [one]", "phases: [ome]", "runner 'train_it' names phase 'ome', which is not there"),
    ("dataset_name: big", "dataset_name: bog", "phase 'one' names dataset 'bog'"),
    ("mode: [train_it, judge_it]", "mode: trian_it", "mode names runner 'trian_it'"),
    ("class: local_cluster_train", "class: local_cluster_trane", "no class 'local_cluster_trane'"),
    ("  epochs: 2", "  startup_class_path: x.py", "startup_class_path is not supported"),
    ("- {name: two,", "- {", "an entry of phase has no name"),
    ("- {name: two,", "- {name: one,", "phase has two entries named 'one'"),
    ("batch_size: 8, ", "", "dataset.batch_size of run 'train_it' is missing"),
    ("data_path: \"{workspace}/data\", ", "", "dataset.data_path of run 'train_it' is missing"),
])  # fmt: skip
def test_what_does_not_fit_in_the_lists_of_185_is_told(
    bench: Bench, old: str, new: str, told: str
) -> None:
    """Where it stands, and what there is."""
    assert old in LISTS
    bench.put({"lists/config.yaml": LISTS.replace(old, new)})
    assert told in bench.problems("-m", "lists")


def test_a_runner_with_several_phases_trains_one_after_the_other(bench: Bench) -> None:
    """PaddleRec took turns in every epoch; that this is another order is told."""
    bench.put({"lists/config.yaml": LISTS.replace("phases: [one]", "phases: [one, two]")})
    recipe = bench.resolve("-m", "lists")
    assert [run.name for run in recipe.runs] == ["train_it.one", "train_it.two", "judge_it"]
    assert "trains one and two one after the other" in recipe.warnings[0]


BUNDLED_NAMES = ResolveContext("/", {}).bundled_names()


@pytest.mark.parametrize("name", BUNDLED_NAMES)
def test_a_copy_of_a_bundled_file_trains_that_model(tmp_path: Path, name: str) -> None:
    """With `workspace: NAME` on top or below runner:, where people look for it."""
    world = ResolveContext(str(tmp_path), {})
    original = resolve(("-m", name), world)
    text = Path(find_config(name, world)).read_text()
    on_top = f"workspace: {name}\n{text}"
    inside = text.replace("runner:\n", f"runner:\n  workspace: {name}\n", 1)
    for changed in (on_top, inside):
        (tmp_path / "config.yaml").write_text(changed)
        copied = resolve(("-m", "config.yaml"), world)
        assert copied.warnings == original.warnings
        for ours, theirs in zip(copied.runs, original.runs, strict=True):
            assert replace(ours, config={}, saving=theirs.saving) == replace(theirs, config={})


def test_a_few_keys_of_2x_about_a_bundled_model_are_enough(tmp_path: Path) -> None:
    """Its own file says the rest, as it does for the older forms."""
    world = ResolveContext(str(tmp_path), {})
    (tmp_path / "config.yaml").write_text(
        "runner:\n  workspace: paddlerec.models.rank.dnn\n  epochs: 7\n"
    )
    (run,) = resolve(("-m", "config.yaml"), world).runs
    (whole,) = resolve(("-m", "paddlerec.models.rank.dnn"), world).runs
    assert (run.epochs, run.reading, run.hyper) == (7, whole.reading, whole.hyper)
