"""test_jax_mesh.py -- a step shared out among the devices of a mesh, in processes of their own: jax asks once
how many devices the CPU is.
"""
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="jax is not in the environment")


@pytest.mark.parametrize("devices", [2, 3])
def test_devices_of_a_mesh(devices, tmp_path):
    check = Path(__file__).with_name("jax_mesh_check.py")
    env = {**os.environ, "JAX_PLATFORMS": "cpu",
           "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    done = subprocess.run([sys.executable, str(check), str(tmp_path)], capture_output=True, text=True,
                          timeout=600, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT SO" not in done.stdout and f"on {devices} devices" in done.stdout, done.stdout
