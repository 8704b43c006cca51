/* Runs kernels of another processor under an emulator: reads buffers and calls, writes the buffers.

   Input: count of buffers, then of each its size and bytes; count of calls, then of each its kernel,
   the count of its arguments, and of each a buffer (or -1) and a number that is added to its address.
   All numbers are 64-bit. The kernels' table is in table.h, written by the test. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*kernel)(void **result, void **error, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
#include "table.h" /* static const kernel kernels[] */

static int64_t number(void) {
    int64_t value;
    if (fread(&value, 8, 1, stdin) != 1) exit(2);
    return value;
}

int main(void) {
    int64_t count = number();
    int64_t *sizes = calloc(count, 8);
    char **buffers = calloc(count, sizeof *buffers);
    for (int64_t b = 0; b < count; b++) {
        sizes[b] = number();
        buffers[b] = aligned_alloc(64, (sizes[b] + 127) / 64 * 64);
        if (sizes[b] && fread(buffers[b], sizes[b], 1, stdin) != 1) exit(3);
    }
    for (int64_t calls = number(); calls > 0; calls--) {
        int64_t which = number(), given = number(), a[6] = {0};
        void *result = 0, *error = 0;
        for (int64_t k = 0; k < given; k++) {
            int64_t buffer = number();
            a[k] = number() + (buffer < 0 ? 0 : (int64_t)buffers[buffer]);
        }
        if (kernels[which](&result, &error, a[0], a[1], a[2], a[3], a[4], a[5])) exit(4);
    }
    for (int64_t b = 0; b < count; b++) fwrite(buffers[b], sizes[b], 1, stdout);
    return 0;
}
