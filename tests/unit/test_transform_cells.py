"""Functions of notebook cells have the notebook's names."""

from __future__ import annotations

from fixtures.profiles import Frame, build_profile

KERNEL = "/tmp/ipykernel_12/4119.py"
TERMINAL = "<ipython-input-3-0a1b>"


def python(name, file):
    return Frame(name, kind="python", path=file, file=file, line=2)


def named(*frames):
    """(name, file) of each frame."""
    profile = build_profile([("python3", 7, 7, 0, 1_000, list(frames), 10, 1)])
    found = profile.name_cells({KERNEL: "In[3]", TERMINAL: "In[4]"})
    shown = found.frames_with_lines
    return [(shown.name[i], shown.file[i]) for i in shown.frames], found


def test_functions_of_cells_are_named_by_their_cells():
    frames = [python("4119.<module>", KERNEL), python("4119.Work.run", KERNEL), python("run", TERMINAL)]
    assert named(*frames)[0] == [
        ("In[3].<module>", "Cell In[3]"),
        ("In[3].Work.run", "Cell In[3]"),
        ("In[4].run", "Cell In[4]"),
    ]


def test_functions_of_other_files_keep_their_names():
    frames = [python("app.run", "/srv/app.py"), Frame("main", file=KERNEL)]
    assert named(*frames)[0] == [("app.run", "/srv/app.py"), ("main", KERNEL)]


def test_objects_are_named_alike():
    profile = named(python("4119.run", KERNEL))[1]
    assert profile.texts("objects", "path") == ["Cell In[3]"]
