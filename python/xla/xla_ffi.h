/* xla_ffi.h -- XLA's foreign function interface, as far as our handlers call it.
 *
 * What is declared here is version 0.1 of its C ABI (xla/ffi/api/c_api.h), which XLA keeps; so the handlers
 * are compiled without jaxlib and serve every one that has the interface. Members behind those that are
 * declared are there by `struct_size` alone.
 */
#ifndef POLAR_XLA_FFI_H
#define POLAR_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

typedef struct xla_error xla_error;

typedef struct xla_extension {
    size_t struct_size;
    int type; /* 1: XLA asks for the metadata */
    struct xla_extension *next;
} xla_extension;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    int major, minor;
} xla_version;

typedef struct {
    size_t struct_size;
    xla_version api;
    uint32_t traits;
} xla_metadata;

typedef struct {
    xla_extension base;
    xla_metadata *metadata;
} xla_metadata_extension;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    const char *message;
    int code;
} xla_error_args;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    void *context; /* of the call */
    void *stream;  /* out */
} xla_stream_args;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    void *context;
    int32_t ordinal; /* out */
} xla_ordinal_args;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    xla_version version;
    void *internal;
    xla_error *(*error_create)(xla_error_args *args);
    void (*error_get_message)(void);
    void (*error_destroy)(xla_error_args *args); /* takes a struct of the same head */
    void (*handler_register)(void);
    xla_error *(*stream_get)(xla_stream_args *args);
    void (*between[12])(void); /* types, states, memory, threads, futures, the run's number */
    xla_error *(*ordinal_get)(xla_ordinal_args *args); /* of newer versions */
} xla_api;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} xla_buffer;

typedef struct { /* of arguments and of results */
    size_t struct_size;
    xla_extension *extension;
    int64_t size;
    int *types; /* 1: a buffer */
    xla_buffer **buffers;
} xla_buffers;

typedef struct {
    const char *text;
    size_t length;
} xla_string;

typedef struct {
    int dtype;
    void *value;
} xla_scalar;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    int64_t size;
    int *types; /* 3: a scalar, 4: a string */
    xla_string **names;
    void **values;
} xla_attributes;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    const xla_api *api;
    void *context;
    int stage; /* 3: execute */
    xla_buffers args, rets;
    xla_attributes attrs;
} xla_call;

enum {
    XLA_INVALID_ARGUMENT = 3,
    XLA_S64 = 5,
    XLA_U8 = 6,
    XLA_F16 = 10,
    XLA_F32 = 11,
    XLA_F64 = 12,
    XLA_BF16 = 16,
    XLA_SCALAR = 3,
    XLA_STRING = 4,
    XLA_EXECUTE = 3
};

#endif
