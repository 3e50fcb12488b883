/* Ends the program with what a call gave instead of what it is to give. */
#ifndef EXPECT_H
#define EXPECT_H

#include <gang.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(wanted, call)                                                             \
    do {                                                                                 \
        int got = (int)(call);                                                           \
        if (got != (int)(wanted)) {                                                      \
            fprintf(stderr, "%s:%d: %s gave %d, not %d: %s\n", __FILE__, __LINE__, #call, \
                    got, (int)(wanted), gang_error());                                   \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

#endif
