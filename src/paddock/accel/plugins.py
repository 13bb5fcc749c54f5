"""Devices that Paddle knows as plug-ins: one table, since a kind's name settles nearly everything.

Paddle's launcher (distributed/launch/context/device.py, 3.3.1) derives from the type: the variable
<TYPE>_VISIBLE_DEVICES, FLAGS_selected_<type>s, PADDLE_XCCL_BACKEND=<type>. Here stands what it asks
the plug-in itself: where a device shows, and which variable the vendor's run time obeys. Types:
PaddlePaddle/PaddleCustomDevice, backends/*. The vendors' commands are not asked: no output of one
was captured by us. A kind that has no countable trace is named with --devices.
"""

from __future__ import annotations

from paddock.accel import Accelerator, DeviceTrace

KNOWN = {
    "mlu": Accelerator(
        title="Cambricon MLU",
        visible=("MLU_VISIBLE_DEVICES",),
        # Cambricon/cambricon-k8s-device-plugin, pkg/mlu/const.go.
        traces=(DeviceTrace("/dev/cambricon_dev[0-9]*"),),
    ),
    "intel_hpu": Accelerator(
        title="Intel HPU",
        # PaddleCustomDevice, backends/intel_hpu/tests; whether the run time obeys it is not
        # said anywhere. Newer drivers show in /dev/accel, as other devices do: no trace.
        visible=("INTEL_HPU_VISIBLE_DEVICES",),
        is_obeyed=False,
    ),
    "iluvatar_gpu": Accelerator(
        title="Iluvatar GPU",
        visible=("CUDA_VISIBLE_DEVICES", "ILUVATAR_GPU_VISIBLE_DEVICES"),
        traces=(DeviceTrace("/dev/iluvatar[0-9]*"),),
    ),
    "metax_gpu": Accelerator(
        title="MetaX GPU",
        # PaddlePaddle/FastDeploy sets MACA_VISIBLE_DEVICES for it in its CI.
        visible=("MACA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "METAX_GPU_VISIBLE_DEVICES"),
        traces=(DeviceTrace("/dev/mxcd", counts=False),),  # one node for all
    ),
    "gcu": Accelerator(
        title="Enflame GCU",
        # EnflameTechnology/vllm-gcu, device_control_env_var.
        visible=("TOPS_VISIBLE_DEVICES", "GCU_VISIBLE_DEVICES"),
        traces=(DeviceTrace("/dev/gcu[0-9]*"),),
    ),
    "sdaa": Accelerator(
        title="Tecorigin SDAA",
        # huggingface/accelerate, utils/launch.py.
        visible=("SDAA_VISIBLE_DEVICES",),
        # PaddleCustomDevice, backends/sdaa/README.md.
        traces=(DeviceTrace("/dev/tcaicard[0-9]*"),),
    ),
}
