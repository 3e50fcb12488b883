/* A table of calls: which parameter of which function is wrong, in which way, and what the result
 * is to be. Each row that holds is printed, so that the caller sees which are missing. */
#ifndef ROWS_H
#define ROWS_H

#include <gang.h>
#include <stdio.h>
#include <stdlib.h>

/* Something has changed that a failing call leaves as it was: of the program that includes this. */
static int is_changed(void);

static void row(const char *what, const char *name, int wanted, int got)
{
    if (got != wanted || is_changed()) {
        fprintf(stderr, "%s gave %d, not %s%s: %s\n", what, got, name,
                is_changed() ? ", and changed what its arguments point to" : "", gang_error());
        exit(1);
    }
    printf("%s %s\n", what, name);
}

#define ROW(wanted, function, parameter, kind, ...)                                        \
    row(#function " " #parameter " " #kind, #wanted, (int)(wanted), (int)function(__VA_ARGS__))

/* The same of what gives a text, whatever it is given. */
#define TEXT(function, parameter, kind, ...)                       \
    row(#function " " #parameter " " #kind, "a text", 1,           \
        function(__VA_ARGS__) != NULL && *function(__VA_ARGS__))

/* Conditions under which the table makes sense. */
#define NEEDED(wanted, call)                                                             \
    do {                                                                                 \
        int got = (int)(call);                                                           \
        if (got != (int)(wanted)) {                                                      \
            fprintf(stderr, "%s:%d: %s gave %d: %s\n", __FILE__, __LINE__, #call, got,  \
                    gang_error());                                                       \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

#endif
