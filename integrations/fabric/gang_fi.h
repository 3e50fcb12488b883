/* Shared by the files of the provider. */
#ifndef GANG_FI_H
#define GANG_FI_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gang_fabric.h"

/* Objects of libfabric: its part is first, so that a pointer to one is a pointer to the other. An
 * object counts those that stand on it, and is not closed before them. */

struct gang_fabric {
    struct fid_fabric fid;
    atomic_int users;
};

struct gang_dom {
    struct fid_domain fid;
    struct gang_fabric *fabric;
    gang_domain *port;
    atomic_int users;
};

struct gang_object {
    struct gang_dom *domain;
    uint32_t number;
    atomic_int users;
};

struct gang_av {
    struct fid_av fid;
    struct gang_object object;
};

struct gang_cq {
    struct fid_cq fid;
    struct gang_object object;
    enum fi_cq_format format;
    bool may_wait;
};

struct gang_cntr {
    struct fid_cntr fid;
    struct gang_object object;
};

struct gang_ep {
    struct fid_ep fid;
    struct gang_object object;
    uint64_t send_flags; /* of operations that are given none */
    uint64_t receive_flags;
    size_t min_multi_recv;
    struct gang_object *bound[8]; /* what it holds on to */
    size_t bound_count;
};

extern const struct fi_tx_attr gang_tx_attr;
extern const struct fi_rx_attr gang_rx_attr;

int gang_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **info);
/* One empty fi_info by the libfabric that has loaded us, or null. */
struct fi_info *gang_fi_new_info(void);
void gang_fi_free_info(struct fi_info *info);
/* To libfabric's log. The room says 0 and 1. */
enum { GANG_INFO, GANG_WARN, GANG_DEBUG };
void gang_fi_say(int how, const char *text);

int gang_fi_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                   void *context);
int gang_fi_av(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
               void *context);
int gang_fi_cq(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
               void *context);
int gang_fi_cntr(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr,
                 void *context);
int gang_fi_ep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int gang_fi_eq(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
               void *context);

/* An object of a domain that its room has made, or has refused to; the domain has one user more. */
int gang_fi_object(struct gang_object *object, struct gang_dom *domain, int64_t number);
/* FI_EBUSY where it has users. */
int gang_fi_release(struct gang_object *object, int kind);

/* For operations that there are none of. */
int gang_fi_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int gang_fi_no_control(struct fid *fid, int command, void *arg);
int gang_fi_no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

#endif
