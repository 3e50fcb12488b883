/* Calls of the provider (gang_fi*.c) to the room crates/fabric, which has the queues, the matching
 * and the progress. Only the two of them use this header: it may change at any time.
 *
 * Calls take any thread. Numbers below 0 are errors of libfabric. An object of a domain is a
 * number. */
#ifndef GANG_FABRIC_H
#define GANG_FABRIC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define GANG_FABRIC_ADDRESS 64  /* bytes of an address */
#define GANG_FABRIC_EAGER 4096  /* bytes of the longest message that can be injected */
#define GANG_FABRIC_PARTS 4     /* parts of a message */
#define GANG_FABRIC_CELLS 256   /* packets that an inbound queue has room for */

typedef struct gang_domain gang_domain;

enum { GANG_VECTOR, GANG_QUEUE, GANG_COUNTER, GANG_ENDPOINT };
enum { GANG_BIND_SENDS = 1, GANG_BIND_RECEIVES = 2, GANG_BIND_SELECTIVE = 4 };

/* Of sends and receives. */
enum {
    GANG_TAGGED = 1,
    GANG_DATA = 2,     /* `data` is for the receiver's completion */
    GANG_INJECT = 4,   /* the memory may be used again when the call returns */
    GANG_REPORT = 8,   /* there is a completion where only those that ask for it have one */
    GANG_DELIVERY = 16, /* the send ends when the message is in the receiver's memory */
    GANG_MULTI = 32,   /* the buffer is for several messages */
    GANG_PEEK = 64,
    GANG_CLAIM = 128,
    GANG_DISCARD = 256,
    GANG_SILENT = 512, /* there is no completion, but for an error */
};

typedef struct gang_operation {
    const struct iovec *parts;
    size_t count;
    uint64_t peer;
    uint64_t tag;
    uint64_t ignore;
    uint64_t data;
    void *context;
    uint32_t flags;
} gang_operation;

typedef struct gang_completion {
    void *context;
    uint64_t flags; /* libfabric's */
    size_t length;
    void *buffer;
    uint64_t data;
    uint64_t tag;
    uint64_t source;
    size_t missing; /* bytes that there was no room for */
    int32_t error;  /* 0, or libfabric's number */
} gang_completion;

typedef struct gang_endpoint_settings {
    /* With fewer bytes of room, a buffer for several messages is given back. */
    size_t min_shared;
    size_t sends_max;
    uint8_t is_directed;
    uint8_t names_source;
} gang_endpoint_settings;

int gang_fabric_open(void (*log)(int is_warning, const char *text), gang_domain **domain);
/* Waits until what was sent has come, while its receivers live. */
void gang_fabric_close(gang_domain *domain);

/* The number of a new object. */
int64_t gang_fabric_vector(gang_domain *);
int64_t gang_fabric_queue(gang_domain *, size_t capacity);
int64_t gang_fabric_counter(gang_domain *);
int64_t gang_fabric_endpoint(gang_domain *, const gang_endpoint_settings *);
int64_t gang_fabric_release(gang_domain *, int kind, uint32_t number);

/* The place of an address in a vector. */
int64_t gang_fabric_insert(gang_domain *, uint32_t vector, const void *address);
int64_t gang_fabric_remove(gang_domain *, uint32_t vector, uint64_t place);
int64_t gang_fabric_lookup(gang_domain *, uint32_t vector, uint64_t place, void *address);
/* The bytes of the whole text with its 0. */
size_t gang_fabric_text(const void *address, char *text, size_t room);

int64_t gang_fabric_bind(gang_domain *, uint32_t endpoint, int kind, uint32_t number,
                         uint32_t flags);
int64_t gang_fabric_enable(gang_domain *, uint32_t endpoint);
int64_t gang_fabric_set_min_shared(gang_domain *, uint32_t endpoint, size_t bytes);
int64_t gang_fabric_address(gang_domain *, uint32_t endpoint, void *address);

int64_t gang_fabric_send(gang_domain *, uint32_t endpoint, const gang_operation *);
int64_t gang_fabric_receive(gang_domain *, uint32_t endpoint, const gang_operation *);
int64_t gang_fabric_cancel(gang_domain *, uint32_t endpoint, void *context);

/* Both make progress. How many completions were read; FI_EAVAIL where an error is next. */
int64_t gang_fabric_read(gang_domain *, uint32_t queue, gang_completion *to, size_t count);
int64_t gang_fabric_read_error(gang_domain *, uint32_t queue, gang_completion *to);
/* 0 once there is something, or the queue was signalled. A timeout below 0 never ends. */
int64_t gang_fabric_wait(gang_domain *, uint32_t queue, int timeout_ms);
int64_t gang_fabric_signal(gang_domain *, uint32_t queue);

int64_t gang_fabric_count(gang_domain *, uint32_t counter, uint64_t *value, uint64_t *errors);
int64_t gang_fabric_set_count(gang_domain *, uint32_t counter, int of_errors, int adds,
                              uint64_t value);
int64_t gang_fabric_wait_count(gang_domain *, uint32_t counter, uint64_t value, int timeout_ms);

#endif
