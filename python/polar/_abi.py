"""_abi.py -- the ctypes of include/polar. Written by tools/gen_python.py: change the headers, not this."""
# fmt: off
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p


POLAR_VERSION_MAJOR = 0
POLAR_VERSION_MINOR = 2
POLAR_VERSION_PATCH = 0
POLAR_VERSION = "0.2.0"
POLAR_MAX_DIMS = 8
POLAR_MAX_STEPS = 32

polar_status = c_int
POLAR_OK = 0
POLAR_E_ARG = 1
POLAR_E_SHAPE = 2
POLAR_E_DTYPE = 3
POLAR_E_FORMAT = 4
POLAR_E_UNSUPPORTED = 5
POLAR_E_NOMEM = 6
POLAR_E_IO = 7
POLAR_E_DEVICE = 8
POLAR_E_STATE = 9

polar_dtype = c_int
POLAR_DTYPE_F64 = 0
POLAR_DTYPE_F32 = 1
POLAR_DTYPE_BF16 = 2
POLAR_DTYPE_F16 = 3
POLAR_DTYPE_COUNT = 4

polar_comm_memory = c_int
POLAR_COMM_HOST = 0
POLAR_COMM_DEVICE = 1

polar_map_kind = c_int
POLAR_MAP_NONE = 0
POLAR_MAP_NEWTON_SCHULZ = 1
POLAR_MAP_EXACT = 2
POLAR_MAP_POWER = 3
POLAR_MAP_SOFT = 4

polar_rounding = c_int
POLAR_ROUND_FUSED = 0
POLAR_ROUND_REFERENCE = 1
POLAR_ROUND_GRAM = 2

polar_momentum = c_int
POLAR_MOMENTUM_HEAVY_BALL = 0
POLAR_MOMENTUM_NESTEROV = 1
POLAR_MOMENTUM_EMA = 2
POLAR_MOMENTUM_AVERAGE = 3
POLAR_MOMENTUM_AVERAGE_NESTEROV = 4
POLAR_MOMENTUM_PICKED = 5

polar_precondition = c_int
POLAR_PRECONDITION_NONE = 0
POLAR_PRECONDITION_ADAM = 1
POLAR_PRECONDITION_LAPROP = 2
POLAR_PRECONDITION_ROWS = 3
POLAR_PRECONDITION_COLUMNS = 4
POLAR_PRECONDITION_BOTH = 5
POLAR_PRECONDITION_SIGN = 6
POLAR_PRECONDITION_KRON = 7
POLAR_PRECONDITION_KRON_TRACE = 8
POLAR_PRECONDITION_KRON_NESTEROV = 9
POLAR_PRECONDITION_SOAP = 10
POLAR_PRECONDITION_SOAP_MOMENTUM = 11
POLAR_PRECONDITION_KL_SOAP = 12
POLAR_PRECONDITION_ROOT = 13

polar_post = c_int
POLAR_POST_NONE = 0
POLAR_POST_ROW_MOMENT = 1
POLAR_POST_COLUMN_MOMENT = 2
POLAR_POST_LONG_MOMENT = 3
POLAR_POST_ENTRY_MOMENT = 4
POLAR_POST_UNWHITEN = 5
POLAR_POST_NORM_MOMENT = 6
POLAR_POST_NORM_SUM = 7
POLAR_POST_BALANCE = 8

polar_scale = c_int
POLAR_SCALE_NONE = 0
POLAR_SCALE_PAPER = 1
POLAR_SCALE_JORDAN = 2
POLAR_SCALE_SPECTRAL = 3
POLAR_SCALE_RMS = 4
POLAR_SCALE_FROBENIUS = 5
POLAR_SCALE_NUCLEAR = 6
POLAR_SCALE_TRANSPOSED = 7
POLAR_SCALE_JORDAN_TRANSPOSED = 8

polar_apply = c_int
POLAR_APPLY_DECOUPLED = 0
POLAR_APPLY_CAUTIOUS = 1
POLAR_APPLY_CONSTRAINED = 2
POLAR_APPLY_HYPERBALL = 3
POLAR_APPLY_UPDATE_FLOOR = 4
POLAR_APPLY_RADIAL_BRAKE = 5

polar_route = c_int
POLAR_ROUTE_AUTO = 0
POLAR_ROUTE_MATRIX = 1
POLAR_ROUTE_AUX = 2

polar_skip = c_int
POLAR_SKIP_NEVER = 0
POLAR_SKIP_NONFINITE = 1
POLAR_SKIP_FLAGGED = 2

polar_grads = c_int
POLAR_GRADS_MEAN = 0
POLAR_GRADS_SAME = 1

polar_state = c_int
POLAR_STATE_MOMENTUM = 0
POLAR_STATE_SECOND_MOMENT = 1
POLAR_STATE_MASTER = 2
POLAR_STATE_STEPS = 3
POLAR_STATE_POST = 4
POLAR_STATE_LEFT = 5
POLAR_STATE_RIGHT = 6
POLAR_STATE_LEFT_BASIS = 7
POLAR_STATE_RIGHT_BASIS = 8
POLAR_STATE_LEFT_FACTORS = 9
POLAR_STATE_RIGHT_FACTORS = 10

polar_load = c_int
POLAR_LOAD_STATE = 0
POLAR_LOAD_SETTINGS = 1
POLAR_LOAD_OTHER_MAP = 2


class polar_tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", polar_dtype),
        ("ndim", c_int),
        ("shape", c_int64 * POLAR_MAX_DIMS),
        ("stride", c_int64 * POLAR_MAX_DIMS),
    ]


class polar_cost(Structure):
    _fields_ = [
        ("ops", c_int64),
        ("flops", c_double),
        ("bytes", c_double),
        ("scratch_bytes", c_size_t),
    ]


class polar_comm_parts(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("at", POINTER(c_size_t)),
        ("bytes", POINTER(c_size_t)),
    ]


polar_comm_exchange = CFUNCTYPE(c_int, c_void_p, POINTER(polar_comm_parts), POINTER(polar_comm_parts), c_void_p)


polar_comm_release = CFUNCTYPE(None, c_void_p)


class polar_comm_funcs(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_int),
        ("size", c_int),
        ("memory", polar_comm_memory),
        ("reserved", c_int),
        ("arg", c_void_p),
        ("exchange", polar_comm_exchange),
        ("release", polar_comm_release),
        ("host", c_void_p),
    ]


class polar_coef(Structure):
    _fields_ = [
        ("a", c_double),
        ("b", c_double),
        ("c", c_double),
    ]


class polar_map_opts(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", polar_map_kind),
        ("precision", polar_dtype),
        ("rounding", polar_rounding),
        ("steps", c_int),
        ("table", c_char_p),
        ("coefs", POINTER(polar_coef)),
        ("eps", c_double),
        ("power", c_double),
    ]


class polar_rule(Structure):
    _fields_ = [
        ("momentum", polar_momentum),
        ("precondition", polar_precondition),
        ("scale", polar_scale),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("map", polar_map_opts),
        ("post", polar_post),
        ("apply", polar_apply),
        ("radius", c_double),
        ("kron_power", c_double),
        ("refresh", c_int64),
        ("clip", c_double),
        ("strength", c_double),
        ("first_basis", c_int64),
        ("fraction", c_double),
    ]


class polar_schedule(Structure):
    _fields_ = [
        ("warmup", c_int64),
        ("total", c_int64),
        ("warmup_from", c_double),
    ]


class polar_block(Structure):
    _fields_ = [
        ("offset", c_int64),
        ("rows", c_int64),
        ("cols", c_int64),
        ("ld", c_int64),
        ("dim", c_int64),
    ]


class polar_param(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("weight", polar_tensor),
        ("grad", polar_tensor),
        ("route", polar_route),
        ("row_blocks", c_int64),
        ("schur_group", c_int64),
        ("schur_dim", c_int64),
        ("group", c_int64),
        ("whole_rows", c_int64),
        ("first_row", c_int64),
        ("blocks", POINTER(polar_block)),
        ("block_count", c_int64),
    ]


class polar_group(Structure):
    _fields_ = [
        ("rule", POINTER(polar_rule)),
        ("lr", c_double),
        ("weight_decay", c_double),
        ("aux_lr", c_double),
        ("aux_weight_decay", c_double),
        ("aux_beta1", c_double),
        ("aux_beta2", c_double),
        ("aux_eps", c_double),
        ("route", polar_route),
        ("reserved", c_int),
    ]


class polar_optim_opts(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rule", polar_rule),
        ("lr", c_double),
        ("weight_decay", c_double),
        ("aux_lr", c_double),
        ("aux_weight_decay", c_double),
        ("aux_beta1", c_double),
        ("aux_beta2", c_double),
        ("aux_eps", c_double),
        ("schedule", polar_schedule),
        ("matrix_names", c_char_p),
        ("aux_names", c_char_p),
        ("allow_no_matrix", c_int),
        ("measure", c_int),
        ("members", c_int64),
        ("groups", POINTER(polar_group)),
        ("group_count", c_int64),
        ("skip_missing", c_int),
        ("skip_nonfinite", polar_skip),
        ("comm", c_void_p),
        ("grads", polar_grads),
        ("placed", c_int),
        ("leaves", c_int64),
        ("bucket_bytes", c_int64),
        ("kron_tf32", c_int),
        ("reserved", c_int),
    ]


class polar_param_stats(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("route", polar_route),
        ("rows", c_int64),
        ("cols", c_int64),
        ("blocks", c_int64),
        ("scale", c_double),
        ("effective_lr", c_double),
        ("update_norm", c_double),
        ("group", c_int64),
        ("steps", c_int64),
        ("skipped", c_int64),
        ("maps", c_int64),
        ("last_maps", c_int64),
    ]


class polar_hyper(Structure):
    _fields_ = [
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
    ]


class polar_optim_layout(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("map_opts", c_size_t),
        ("rule", c_size_t),
        ("schedule", c_size_t),
        ("param", c_size_t),
        ("optim_opts", c_size_t),
        ("group", c_size_t),
        ("block", c_size_t),
    ]


FUNCTIONS = {    # name: (result, arguments)
    "polar_status_name": (c_char_p, [polar_status]),
    "polar_error_message": (c_char_p, []),
    "polar_version": (c_char_p, []),
    "polar_dtype_size": (c_size_t, [polar_dtype]),
    "polar_dtype_name": (c_char_p, [polar_dtype]),
    "polar_dtype_parse": (polar_status, [POINTER(polar_dtype), c_char_p]),
    "polar_tensor_1d": (polar_tensor, [c_void_p, polar_dtype, c_int64]),
    "polar_tensor_2d": (polar_tensor, [c_void_p, polar_dtype, c_int64, c_int64]),
    "polar_tensor_3d": (polar_tensor, [c_void_p, polar_dtype, c_int64, c_int64, c_int64]),
    "polar_device_open": (polar_status, [POINTER(c_void_p), c_char_p]),
    "polar_device_close": (None, [c_void_p]),
    "polar_device_name": (c_char_p, [c_void_p]),
    "polar_device_alloc": (polar_status, [c_void_p, POINTER(c_void_p), c_size_t]),
    "polar_device_free": (None, [c_void_p, c_void_p]),
    "polar_backend_count": (c_int, []),
    "polar_backend_name": (c_char_p, [c_int]),
    "polar_backend_summary": (c_char_p, [c_int]),
    "polar_queue_create": (polar_status, [POINTER(c_void_p), c_void_p, c_void_p]),
    "polar_queue_set_stream": (polar_status, [c_void_p, c_void_p]),
    "polar_queue_destroy": (None, [c_void_p]),
    "polar_queue_sync": (polar_status, [c_void_p]),
    "polar_queue_upload": (None, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "polar_queue_download": (None, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "polar_queue_dry_begin": (polar_status, [c_void_p]),
    "polar_queue_dry_end_sized": (polar_status, [c_void_p, POINTER(polar_cost), c_size_t]),
    "polar_queue_reserve": (polar_status, [c_void_p, c_size_t]),
    "polar_device_set_threads": (polar_status, [c_void_p, c_int, c_int]),
    "polar_device_get_threads": (c_int, [c_void_p]),
    "polar_device_get_spin": (c_int, [c_void_p]),
    "polar_comm_open": (polar_status, [POINTER(c_void_p), c_char_p]),
    "polar_comm_open_threads": (polar_status, [POINTER(c_void_p), c_int, c_double]),
    "polar_comm_open_nccl": (polar_status, [POINTER(c_void_p), c_void_p, c_void_p]),
    "polar_comm_create": (polar_status, [POINTER(c_void_p), POINTER(polar_comm_funcs)]),
    "polar_comm_close": (None, [c_void_p]),
    "polar_comm_rank": (c_int, [c_void_p]),
    "polar_comm_size": (c_int, [c_void_p]),
    "polar_comm_name": (c_char_p, [c_void_p]),
    "polar_comm_bytes_sent": (c_int64, [c_void_p]),
    "polar_comm_share": (polar_status, [c_void_p, c_int64, POINTER(c_int64), POINTER(c_int64)]),
    "polar_comm_all_to_all": (polar_status, [c_void_p, c_void_p, POINTER(polar_comm_parts), POINTER(polar_comm_parts)]),
    "polar_comm_broadcast": (polar_status, [c_void_p, c_void_p, c_void_p, c_size_t, c_int]),
    "polar_comm_reduce": (polar_status, [c_void_p, c_void_p, c_void_p, c_int64, polar_dtype, c_int64, c_int]),
    "polar_comm_all_reduce": (polar_status, [c_void_p, c_void_p, c_void_p, c_int64, polar_dtype, c_int64]),
    "polar_map_apply": (polar_status, [c_void_p, POINTER(polar_tensor), POINTER(polar_tensor), c_int64, POINTER(polar_map_opts)]),
    "polar_map_apply_blocks": (polar_status, [c_void_p, POINTER(polar_tensor), POINTER(polar_tensor), POINTER(c_int64), c_int64, POINTER(polar_map_opts)]),
    "polar_coef_table": (polar_status, [POINTER(polar_coef), c_int, c_char_p]),
    "polar_coef_table_name": (c_char_p, [c_int]),
    "polar_map_opts_parse_sized": (polar_status, [POINTER(polar_map_opts), c_size_t, c_char_p]),
    "polar_rule_name": (c_char_p, [c_int]),
    "polar_scale_parse": (polar_status, [POINTER(polar_scale), c_char_p]),
    "polar_scale_value": (c_double, [polar_scale, c_int64, c_int64]),
    "polar_schedule_factor": (c_double, [POINTER(polar_schedule), c_int64]),
    "polar_optim_destroy": (None, [c_void_p]),
    "polar_optim_step": (polar_status, [c_void_p, c_void_p]),
    "polar_optim_prepare": (polar_status, [c_void_p, c_void_p]),
    "polar_optim_enqueue": (polar_status, [c_void_p, c_void_p]),
    "polar_optim_set_lr": (polar_status, [c_void_p, c_double, c_double]),
    "polar_optim_set_weight_decay": (polar_status, [c_void_p, c_double, c_double]),
    "polar_optim_set_member": (polar_status, [c_void_p, c_int64, c_double, c_double, c_double, c_double, c_int]),
    "polar_optim_set_hyper": (polar_status, [c_void_p, c_int64, c_int64, polar_route, POINTER(polar_hyper)]),
    "polar_optim_get_hyper": (polar_status, [c_void_p, c_int64, c_int64, polar_route, POINTER(polar_hyper)]),
    "polar_optim_group_count": (c_int64, [c_void_p]),
    "polar_optim_set_grad": (polar_status, [c_void_p, c_int64, c_void_p]),
    "polar_optim_set_grads": (polar_status, [c_void_p, POINTER(c_void_p), c_int64]),
    "polar_optim_set_scaler": (polar_status, [c_void_p, POINTER(c_float), POINTER(c_float)]),
    "polar_optim_set_rates": (polar_status, [c_void_p, POINTER(c_float), c_int64]),
    "polar_optim_get_step": (c_int64, [c_void_p]),
    "polar_optim_skipped": (c_int64, [c_void_p]),
    "polar_optim_param_count": (c_int64, [c_void_p]),
    "polar_optim_report": (c_char_p, [c_void_p]),
    "polar_optim_state_bytes": (c_size_t, [c_void_p]),
    "polar_optim_place": (polar_status, [c_void_p, POINTER(c_void_p), POINTER(c_void_p), c_int64, c_void_p]),
    "polar_optim_placed_bytes": (c_size_t, [c_void_p]),
    "polar_optim_restart": (polar_status, [c_void_p, c_void_p]),
    "polar_optim_add_grads": (polar_status, [c_void_p, c_void_p, c_int64]),
    "polar_optim_add_grad": (polar_status, [c_void_p, c_void_p, c_int64, c_int64]),
    "polar_optim_get_part": (polar_status, [c_void_p, c_int64, c_int, POINTER(c_int64), POINTER(c_int64)]),
    "polar_optim_save": (polar_status, [c_void_p, c_void_p, c_char_p]),
    "polar_optim_load_with": (polar_status, [c_void_p, c_void_p, c_char_p, c_uint]),
    "polar_optim_reload_weights": (polar_status, [c_void_p, c_void_p]),
    "polar_optim_state_view": (polar_status, [POINTER(polar_tensor), c_void_p, c_int64, polar_state]),
    "polar_optim_part_count": (c_int64, [c_void_p, c_int64]),
    "polar_optim_part_view": (polar_status, [POINTER(polar_tensor), c_void_p, c_int64, c_int64, polar_state]),
    "polar_rule_parse_sized": (polar_status, [POINTER(polar_rule), c_char_p, POINTER(polar_optim_layout)]),
    "polar_optim_opts_parse_sized": (polar_status, [POINTER(polar_optim_opts), c_char_p, POINTER(polar_optim_layout)]),
    "polar_optim_create_sized": (polar_status, [POINTER(c_void_p), c_void_p, POINTER(polar_param), c_int64, POINTER(polar_optim_opts), POINTER(polar_optim_layout)]),
    "polar_optim_stats_sized": (polar_status, [c_void_p, c_void_p, POINTER(polar_param_stats), c_size_t]),
}

ENUMS = {
    "polar_status": ['POLAR_OK', 'POLAR_E_ARG', 'POLAR_E_SHAPE', 'POLAR_E_DTYPE', 'POLAR_E_FORMAT', 'POLAR_E_UNSUPPORTED', 'POLAR_E_NOMEM', 'POLAR_E_IO', 'POLAR_E_DEVICE', 'POLAR_E_STATE'],
    "polar_dtype": ['POLAR_DTYPE_F64', 'POLAR_DTYPE_F32', 'POLAR_DTYPE_BF16', 'POLAR_DTYPE_F16', 'POLAR_DTYPE_COUNT'],
    "polar_comm_memory": ['POLAR_COMM_HOST', 'POLAR_COMM_DEVICE'],
    "polar_map_kind": ['POLAR_MAP_NONE', 'POLAR_MAP_NEWTON_SCHULZ', 'POLAR_MAP_EXACT', 'POLAR_MAP_POWER', 'POLAR_MAP_SOFT'],
    "polar_rounding": ['POLAR_ROUND_FUSED', 'POLAR_ROUND_REFERENCE', 'POLAR_ROUND_GRAM'],
    "polar_momentum": ['POLAR_MOMENTUM_HEAVY_BALL', 'POLAR_MOMENTUM_NESTEROV', 'POLAR_MOMENTUM_EMA', 'POLAR_MOMENTUM_AVERAGE', 'POLAR_MOMENTUM_AVERAGE_NESTEROV', 'POLAR_MOMENTUM_PICKED'],
    "polar_precondition": ['POLAR_PRECONDITION_NONE', 'POLAR_PRECONDITION_ADAM', 'POLAR_PRECONDITION_LAPROP', 'POLAR_PRECONDITION_ROWS', 'POLAR_PRECONDITION_COLUMNS', 'POLAR_PRECONDITION_BOTH', 'POLAR_PRECONDITION_SIGN', 'POLAR_PRECONDITION_KRON', 'POLAR_PRECONDITION_KRON_TRACE', 'POLAR_PRECONDITION_KRON_NESTEROV', 'POLAR_PRECONDITION_SOAP', 'POLAR_PRECONDITION_SOAP_MOMENTUM', 'POLAR_PRECONDITION_KL_SOAP', 'POLAR_PRECONDITION_ROOT'],
    "polar_post": ['POLAR_POST_NONE', 'POLAR_POST_ROW_MOMENT', 'POLAR_POST_COLUMN_MOMENT', 'POLAR_POST_LONG_MOMENT', 'POLAR_POST_ENTRY_MOMENT', 'POLAR_POST_UNWHITEN', 'POLAR_POST_NORM_MOMENT', 'POLAR_POST_NORM_SUM', 'POLAR_POST_BALANCE'],
    "polar_scale": ['POLAR_SCALE_NONE', 'POLAR_SCALE_PAPER', 'POLAR_SCALE_JORDAN', 'POLAR_SCALE_SPECTRAL', 'POLAR_SCALE_RMS', 'POLAR_SCALE_FROBENIUS', 'POLAR_SCALE_NUCLEAR', 'POLAR_SCALE_TRANSPOSED', 'POLAR_SCALE_JORDAN_TRANSPOSED'],
    "polar_apply": ['POLAR_APPLY_DECOUPLED', 'POLAR_APPLY_CAUTIOUS', 'POLAR_APPLY_CONSTRAINED', 'POLAR_APPLY_HYPERBALL', 'POLAR_APPLY_UPDATE_FLOOR', 'POLAR_APPLY_RADIAL_BRAKE'],
    "polar_route": ['POLAR_ROUTE_AUTO', 'POLAR_ROUTE_MATRIX', 'POLAR_ROUTE_AUX'],
    "polar_skip": ['POLAR_SKIP_NEVER', 'POLAR_SKIP_NONFINITE', 'POLAR_SKIP_FLAGGED'],
    "polar_grads": ['POLAR_GRADS_MEAN', 'POLAR_GRADS_SAME'],
    "polar_state": ['POLAR_STATE_MOMENTUM', 'POLAR_STATE_SECOND_MOMENT', 'POLAR_STATE_MASTER', 'POLAR_STATE_STEPS', 'POLAR_STATE_POST', 'POLAR_STATE_LEFT', 'POLAR_STATE_RIGHT', 'POLAR_STATE_LEFT_BASIS', 'POLAR_STATE_RIGHT_BASIS', 'POLAR_STATE_LEFT_FACTORS', 'POLAR_STATE_RIGHT_FACTORS'],
    "polar_load": ['POLAR_LOAD_STATE', 'POLAR_LOAD_SETTINGS', 'POLAR_LOAD_OTHER_MAP'],
}
STRUCTS = [polar_tensor, polar_cost, polar_comm_parts, polar_comm_funcs, polar_coef, polar_map_opts, polar_rule, polar_schedule, polar_block, polar_param, polar_group, polar_optim_opts, polar_param_stats, polar_hyper, polar_optim_layout]
