"""Text for ranks that speak to CUDA's driver itself: no framework is needed to see a device."""

# What a rank sees, in the driver's own order, as nvidia-smi writes it. One of MIG has a UUID too.
DRIVER = """
import ctypes, uuid
cuda = ctypes.CDLL("libcuda.so.1")
NO_DEVICE, OUT_OF_MEMORY = 100, 2
def devices():
    code = cuda.cuInit(0)
    if code == NO_DEVICE:
        return []
    assert code == 0, f"cuInit: {code}"
    count = ctypes.c_int()
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    found = []
    for number in range(count.value):
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        assert cuda.cuDeviceGet(ctypes.byref(device), number) == 0
        assert cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device) == 0
        found.append(str(uuid.UUID(bytes=bytes(raw))))
    return found
def use_first():
    assert devices()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
def allocate(size):
    pointer = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    if code == OUT_OF_MEMORY:
        raise MemoryError(f"CUDA_ERROR_OUT_OF_MEMORY for {size} bytes")
    assert code == 0, f"cuMemAlloc: {code}"
"""
