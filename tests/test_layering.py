"""Every file is device, host or boundary, and says so; the split is enforced, not intended."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "jaxtool"
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.stat().st_size > 200)
DEVICE_IMPORTS = {
    "jax",
    "flax",
    "optax",
    "jaxtyping",
    "numpy",
    "dataclasses",
    "functools",
    "math",
    "typing",
    "collections",
}


def imports(path):
    """Top-level names of all imports, those inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def kind(path):
    head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    words = {name for name in ("Host code", "Device code", "Boundary") if name in head}
    assert len(words) == 1, f"{path.relative_to(ROOT)}: the docstring says {sorted(words)}; expected one kind"
    return words.pop()


def module_file(name):
    path = ROOT / (name.replace(".", "/") + ".py")
    return path if path.is_file() else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_keeps_to_its_kind(path):
    used = imports(path)
    if kind(path) == "Host code":
        assert not {name for name in used if name.split(".")[0] in ("jax", "flax", "optax", "orbax", "torch")}
    if kind(path) == "Device code":
        assert {name.split(".")[0] for name in used} <= DEVICE_IMPORTS | {"jaxtool"}
        for name in used:
            if (other := module_file(name)) and "models/config" not in str(other):
                assert kind(other) == "Device code" or other.name == "types.py", f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_file_is_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_host_code_brings_no_jax_and_nothing_brings_torch():
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in FILES if kind(p) == "Host code"]
    program = f"import sys, {', '.join(names)}; assert 'jax' not in sys.modules, 'jax'; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
    program = "import sys, jaxtool.train, jaxtool.evaluate; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_every_configuration_field_is_read_somewhere():
    source = "".join(
        p.read_text(encoding="utf-8") for p in FILES if p.name not in ("config.py", "config_loader.py")
    )
    tree = ast.parse((PACKAGE / "config.py").read_text(encoding="utf-8"))
    for section in (
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Config")
    ):
        for field in (node for node in section.body if isinstance(node, ast.AnnAssign)):
            assert f".{field.target.id}" in source, f"{section.name}.{field.target.id} is read nowhere"


@pytest.mark.parametrize("script", sorted((ROOT / "launch").glob("*.py")), ids=lambda p: p.name)
def test_launch_scripts_explain_themselves_without_jax(script):
    """--help answers with an example, and fast: nothing heavy is imported for it."""
    program = (
        "import runpy, sys; sys.argv = ['x', '--help']\n"
        f"try: runpy.run_path({str(script)!r}, run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'jax', 'torch', 'transformers', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert f"python launch/{script.name}" in done.stdout
