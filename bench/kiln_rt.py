"""libkiln_rt through ctypes: modules, and sessions on tensors of whoever has some."""
import ctypes


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Port(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64))]


class SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_int32), ("profile", ctypes.c_int32),
                ("spin_us", ctypes.c_int32), ("device", ctypes.c_int32), ("is_async", ctypes.c_int32),
                ("stream", ctypes.c_void_p)]


def dl_tensor(address, device, shape, code, bits):
    """A row-major DLTensor over memory of somebody else's; |device| is (type, number)."""
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    return DLTensor(address, *device, len(shape), code, bits, 1, extents, None, 0)


class Session:
    """A compiled module and one session, with |options| of SessionOptions."""

    def __init__(self, build, path, **options):
        rt = ctypes.CDLL(str(build / "libkiln_rt.so"))
        for name in ("kiln_module_input", "kiln_module_output"):
            getattr(rt, name).restype = Port
            getattr(rt, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        for name in ("kiln_module_input_count", "kiln_module_output_count", "kiln_module_launch_count"):
            getattr(rt, name).restype = ctypes.c_size_t
            getattr(rt, name).argtypes = [ctypes.c_void_p]
        rt.kiln_diag_create.restype = ctypes.c_void_p
        rt.kiln_diag_message.restype = ctypes.c_char_p
        rt.kiln_diag_message.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.rt, self.diag = rt, ctypes.c_void_p(rt.kiln_diag_create())
        self.module, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(rt.kiln_module_load(str(path).encode(), self.diag, ctypes.byref(self.module)))
        given = SessionOptions(struct_size=ctypes.sizeof(SessionOptions), **options)
        self.check(rt.kiln_session_create(self.module, ctypes.byref(given), self.diag, ctypes.byref(self.session)))
        self.inputs = [rt.kiln_module_input(self.module, i) for i in range(rt.kiln_module_input_count(self.module))]
        self.output_ports = [rt.kiln_module_output(self.module, i) for i in range(rt.kiln_module_output_count(self.module))]
        self.launches = rt.kiln_module_launch_count(self.module)

    def check(self, status):
        if status:
            raise RuntimeError((self.rt.kiln_diag_message(self.diag, 0) or b"unknown").decode())

    def bind_tensors(self, given, results, *owners):
        """Fixes the DLTensors of the runs that follow; |owners| live as long."""
        self.kept = given, results, owners
        self.from_ = (ctypes.POINTER(DLTensor) * max(len(given), 1))(*map(ctypes.pointer, given))
        self.to = (ctypes.POINTER(DLTensor) * max(len(results), 1))(*map(ctypes.pointer, results))

    def run(self):
        self.check(self.rt.kiln_session_run(self.session, ctypes.c_size_t(len(self.inputs)), self.from_,
                                            ctypes.c_size_t(len(self.output_ports)), self.to, self.diag))
        return self.outputs

    def wait(self):
        self.check(self.rt.kiln_session_wait(self.session, self.diag))

    def close(self):
        self.rt.kiln_session_destroy(self.session)
        self.rt.kiln_module_release(self.module)
