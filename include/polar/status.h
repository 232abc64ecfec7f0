/* status.h -- how a call of libpolar says that it failed.
 *
 * Every fallible call returns a polar_status and, when it is not POLAR_OK, leaves one sentence for
 * the calling thread: what went wrong, what to try. With POLAR_TRACE=1 in the environment it also
 * says where in the sources. Nothing in the library prints or exits.
 *
 *     if (polar_device_open(&dev, "cpu") != POLAR_OK) puts(polar_error_message());
 */
#ifndef POLAR_STATUS_H
#define POLAR_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define POLAR_API __attribute__((visibility("default")))
#else
#define POLAR_API
#endif

#define POLAR_VERSION_MAJOR 0
#define POLAR_VERSION_MINOR 2
#define POLAR_VERSION_PATCH 0
#define POLAR_VERSION       "0.2.0"

typedef enum polar_status {
    POLAR_OK = 0,
    POLAR_E_ARG,         /* the caller asked for something that does not exist or makes no sense */
    POLAR_E_SHAPE,       /* sizes that do not fit together */
    POLAR_E_DTYPE,       /* a number format this call does not take */
    POLAR_E_FORMAT,      /* a file that does not hold what it claims */
    POLAR_E_UNSUPPORTED, /* right, but not on this device or in this build */
    POLAR_E_NOMEM,       /* out of memory, host or device */
    POLAR_E_IO,          /* the operating system could not read or write */
    POLAR_E_DEVICE,      /* the device failed or is missing */
    POLAR_E_STATE        /* right call, wrong moment */
} polar_status;

/* two or three words, e.g. "shape mismatch" */
POLAR_API const char *polar_status_name(polar_status status);
/* the last sentence of this thread, "" if none; borrowed */
POLAR_API const char *polar_error_message(void);
/* of the library that is loaded, e.g. "0.1.0" */
POLAR_API const char *polar_version(void);

#ifdef __cplusplus
}
#endif
#endif
