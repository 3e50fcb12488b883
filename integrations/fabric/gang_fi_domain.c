/* Domains, address vectors, memory that needs no registration, and event queues without events. */
#include <poll.h>

#include "gang_fi.h"

int gang_fi_object(struct gang_object *object, struct gang_dom *domain, int64_t number)
{
    if (number < 0)
        return (int)number;
    object->domain = domain;
    object->number = (uint32_t)number;
    atomic_fetch_add(&domain->users, 1);
    return 0;
}

int gang_fi_release(struct gang_object *object, int kind)
{
    if (atomic_load(&object->users) > 0)
        return -FI_EBUSY;
    gang_fabric_release(object->domain->port, kind, object->number);
    atomic_fetch_sub(&object->domain->users, 1);
    return 0;
}

/* Address vectors: the place of an address is its fi_addr_t, whatever the type of the vector. */

static int av_close(struct fid *fid)
{
    struct gang_av *av = (struct gang_av *)fid;
    int result = gang_fi_release(&av->object, GANG_VECTOR);
    if (!result)
        free(av);
    return result;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *fi_addr,
                     uint64_t flags, void *context)
{
    struct gang_av *av = (struct gang_av *)fid;
    const char *next = addr;
    int *errors = flags & FI_SYNC_ERR ? context : NULL;
    int inserted = 0;
    if (flags & ~(FI_MORE | FI_SYNC_ERR))
        return -FI_EBADFLAGS;
    for (size_t i = 0; i < count; i++, next += GANG_FABRIC_ADDRESS) {
        int64_t place = gang_fabric_insert(av->object.domain->port, av->object.number, next);
        if (fi_addr)
            fi_addr[i] = place < 0 ? FI_ADDR_NOTAVAIL : (fi_addr_t)place;
        if (errors)
            errors[i] = place < 0 ? (int)-place : 0;
        inserted += place >= 0;
    }
    return inserted;
}

static int av_insertsvc(struct fid_av *av, const char *node, const char *service,
                        fi_addr_t *fi_addr, uint64_t flags, void *context)
{
    (void)av, (void)node, (void)service, (void)fi_addr, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static int av_insertsym(struct fid_av *av, const char *node, size_t nodecnt, const char *service,
                        size_t svccnt, fi_addr_t *fi_addr, uint64_t flags, void *context)
{
    (void)av, (void)node, (void)nodecnt, (void)service, (void)svccnt;
    (void)fi_addr, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static int av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count, uint64_t flags)
{
    struct gang_av *av = (struct gang_av *)fid;
    int result = 0;
    (void)flags;
    for (size_t i = 0; i < count; i++) {
        int64_t removed =
            gang_fabric_remove(av->object.domain->port, av->object.number, fi_addr[i]);
        if (removed < 0)
            result = (int)removed;
    }
    return result;
}

static int av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr, size_t *addrlen)
{
    struct gang_av *av = (struct gang_av *)fid;
    char found[GANG_FABRIC_ADDRESS];
    int64_t result =
        gang_fabric_lookup(av->object.domain->port, av->object.number, fi_addr, found);
    if (result < 0)
        return (int)result;
    memcpy(addr, found, *addrlen < sizeof found ? *addrlen : sizeof found);
    *addrlen = sizeof found;
    return 0;
}

static const char *av_straddr(struct fid_av *av, const void *addr, char *buf, size_t *len)
{
    (void)av;
    *len = gang_fabric_text(addr, buf, *len);
    return buf;
}

static struct fi_ops av_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = av_close,
    .bind = gang_fi_no_bind,
    .control = gang_fi_no_control,
    .ops_open = gang_fi_no_ops,
};

static struct fi_ops_av av_ops = {
    .size = sizeof(struct fi_ops_av),
    .insert = av_insert,
    .insertsvc = av_insertsvc,
    .insertsym = av_insertsym,
    .remove = av_remove,
    .lookup = av_lookup,
    .straddr = av_straddr,
};

int gang_fi_av(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
    struct gang_dom *domain = (struct gang_dom *)fid;
    /* Neither insertion in the background, nor vectors that processes share. */
    if (attr && (attr->flags & ~FI_SYMMETRIC || attr->name || attr->rx_ctx_bits))
        return -FI_ENOSYS;
    struct gang_av *av = calloc(1, sizeof *av);
    if (!av)
        return -FI_ENOMEM;
    int result = gang_fi_object(&av->object, domain, gang_fabric_vector(domain->port));
    if (result) {
        free(av);
        return result;
    }
    av->fid.fid.fclass = FI_CLASS_AV;
    av->fid.fid.context = context;
    av->fid.fid.ops = &av_fi_ops;
    av->fid.ops = &av_ops;
    if (attr && attr->type == FI_AV_UNSPEC)
        attr->type = FI_AV_TABLE;
    *out = &av->fid;
    return 0;
}

/* Memory: programs may register it, and nothing follows. */

static int mr_close(struct fid *fid)
{
    free(fid);
    return 0;
}

static struct fi_ops mr_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = mr_close,
    .bind = gang_fi_no_bind,
    .control = gang_fi_no_control,
    .ops_open = gang_fi_no_ops,
};

static int mr_new(uint64_t requested_key, struct fid_mr **out, void *context)
{
    struct fid_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return -FI_ENOMEM;
    mr->fid.fclass = FI_CLASS_MR;
    mr->fid.context = context;
    mr->fid.ops = &mr_fi_ops;
    mr->mem_desc = mr;
    mr->key = requested_key;
    *out = mr;
    return 0;
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
                  uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
    (void)fid, (void)buf, (void)len, (void)access, (void)offset, (void)flags;
    return mr_new(requested_key, mr, context);
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
                   uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr,
                   void *context)
{
    (void)fid, (void)iov, (void)count, (void)access, (void)offset, (void)flags;
    return mr_new(requested_key, mr, context);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                      struct fid_mr **mr)
{
    (void)fid, (void)flags;
    return mr_new(attr->requested_key, mr, attr->context);
}

static struct fi_ops_mr mr_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = mr_reg,
    .regv = mr_regv,
    .regattr = mr_regattr,
};

/* Event queues: no connections, and nothing in the background, so only the program writes to one,
 * which it may not. */

struct gang_eq {
    struct fid_eq fid;
    struct gang_fabric *fabric;
};

static ssize_t eq_read(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
    (void)eq, (void)event, (void)buf, (void)len, (void)flags;
    return -FI_EAGAIN;
}

static ssize_t eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags)
{
    (void)eq, (void)buf, (void)flags;
    return -FI_EAGAIN;
}

static ssize_t eq_write(struct fid_eq *eq, uint32_t event, const void *buf, size_t len,
                        uint64_t flags)
{
    (void)eq, (void)event, (void)buf, (void)len, (void)flags;
    return -FI_ENOSYS;
}

static ssize_t eq_sread(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout,
                        uint64_t flags)
{
    (void)eq, (void)event, (void)buf, (void)len, (void)flags;
    /* Without a timeout it would never return. */
    poll(NULL, 0, timeout < 0 ? 1000 : timeout);
    return -FI_EAGAIN;
}

static const char *eq_strerror(struct fid_eq *eq, int prov_errno, const void *err_data, char *buf,
                               size_t len)
{
    (void)eq, (void)prov_errno, (void)err_data, (void)buf, (void)len;
    return "no event";
}

static int eq_close(struct fid *fid)
{
    struct gang_eq *eq = (struct gang_eq *)fid;
    atomic_fetch_sub(&eq->fabric->users, 1);
    free(eq);
    return 0;
}

static struct fi_ops eq_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = eq_close,
    .bind = gang_fi_no_bind,
    .control = gang_fi_no_control,
    .ops_open = gang_fi_no_ops,
};

static struct fi_ops_eq eq_ops = {
    .size = sizeof(struct fi_ops_eq),
    .read = eq_read,
    .readerr = eq_readerr,
    .write = eq_write,
    .sread = eq_sread,
    .strerror = eq_strerror,
};

int gang_fi_eq(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out,
               void *context)
{
    (void)attr;
    struct gang_eq *eq = calloc(1, sizeof *eq);
    if (!eq)
        return -FI_ENOMEM;
    eq->fabric = (struct gang_fabric *)fabric;
    atomic_fetch_add(&eq->fabric->users, 1);
    eq->fid.fid.fclass = FI_CLASS_EQ;
    eq->fid.fid.context = context;
    eq->fid.fid.ops = &eq_fi_ops;
    eq->fid.ops = &eq_ops;
    *out = &eq->fid;
    return 0;
}

/* Domains. */

static int domain_close(struct fid *fid)
{
    struct gang_dom *domain = (struct gang_dom *)fid;
    if (atomic_load(&domain->users) > 0)
        return -FI_EBUSY;
    gang_fabric_close(domain->port);
    atomic_fetch_sub(&domain->fabric->users, 1);
    free(domain);
    return 0;
}

static int domain_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)flags;
    return bfid->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL;
}

static int no_sep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep,
                  void *context)
{
    (void)domain, (void)info, (void)sep, (void)context;
    return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **pollset)
{
    (void)domain, (void)attr, (void)pollset;
    return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
                  void *context)
{
    (void)domain, (void)attr, (void)stx, (void)context;
    return -FI_ENOSYS;
}

static int no_srx(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
                  void *context)
{
    (void)domain, (void)attr, (void)rx_ep, (void)context;
    return -FI_ENOSYS;
}

static int no_atomic(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
                     struct fi_atomic_attr *attr, uint64_t flags)
{
    (void)domain, (void)datatype, (void)op, (void)attr, (void)flags;
    return -FI_EOPNOTSUPP;
}

static int no_collective(struct fid_domain *domain, enum fi_collective_op coll,
                         struct fi_collective_attr *attr, uint64_t flags)
{
    (void)domain, (void)coll, (void)attr, (void)flags;
    return -FI_EOPNOTSUPP;
}

static struct fi_ops domain_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = domain_close,
    .bind = domain_bind,
    .control = gang_fi_no_control,
    .ops_open = gang_fi_no_ops,
};

static struct fi_ops_domain domain_ops = {
    /* Without endpoint2, which libfabric does not ask for then. */
    .size = offsetof(struct fi_ops_domain, endpoint2),
    .av_open = gang_fi_av,
    .cq_open = gang_fi_cq,
    .endpoint = gang_fi_ep,
    .scalable_ep = no_sep,
    .cntr_open = gang_fi_cntr,
    .poll_open = no_poll,
    .stx_ctx = no_stx,
    .srx_ctx = no_srx,
    .query_atomic = no_atomic,
    .query_collective = no_collective,
};

int gang_fi_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **out,
                   void *context)
{
    (void)info;
    struct gang_dom *domain = calloc(1, sizeof *domain);
    if (!domain)
        return -FI_ENOMEM;
    int result = gang_fabric_open(gang_fi_say, &domain->port);
    if (result) {
        free(domain);
        return result;
    }
    domain->fabric = (struct gang_fabric *)fabric;
    atomic_fetch_add(&domain->fabric->users, 1);
    domain->fid.fid.fclass = FI_CLASS_DOMAIN;
    domain->fid.fid.context = context;
    domain->fid.fid.ops = &domain_fi_ops;
    domain->fid.ops = &domain_ops;
    domain->fid.mr = &mr_ops;
    *out = &domain->fid;
    return 0;
}
