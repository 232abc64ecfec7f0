/* provenance.c -- the code's version, the processor's model, the device's name. */
#include "lab/run/provenance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread_pool.h"

#if __has_include(<polar_code_version.h>)
#include <polar_code_version.h> /* made by cmake/code_version.cmake: #define POLAR_CODE_VERSION "..." */
#endif

const char *pl_code_version(void)
{
#ifdef POLAR_CODE_VERSION
    if (*POLAR_CODE_VERSION) return POLAR_CODE_VERSION;
#endif
    return polar_version();
}

/* "model name : ..." of the first processor; a machine without one (not x86) is named by its architecture's
 * words, or not at all. */
static void processor_model(char *out, size_t bytes)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, bytes, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || (strncmp(line, "model name", 10) && strncmp(line, "CPU implementer", 15))) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, bytes, "%s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (f) fclose(f);
}

pl_provenance pl_provenance_of(pl_provenance_text *text, const polar_device *dev)
{
    snprintf(text->device, sizeof text->device, "%s", polar_device_name(dev));
    processor_model(text->cpu, sizeof text->cpu);
    const char *threads = strstr(text->device, "threads=");
    return (pl_provenance){pl_code_version(), text->device, text->cpu,
                           threads ? atoll(threads + 8) : pl_processor_count(), NULL};
}
