/* Endpoints: messages with and without tags. */
#include "gang_fi.h"

/* Sends and receives: all forms become one. */

static uint32_t send_flags(const struct gang_ep *ep, uint64_t flags)
{
    (void)ep;
    return (flags & FI_COMPLETION ? GANG_REPORT : 0) | (flags & FI_INJECT ? GANG_INJECT : 0) |
           (flags & FI_REMOTE_CQ_DATA ? GANG_DATA : 0) |
           (flags & FI_DELIVERY_COMPLETE ? GANG_DELIVERY : 0);
}

static uint32_t receive_flags(uint64_t flags)
{
    return (flags & FI_COMPLETION ? GANG_REPORT : 0) | (flags & FI_MULTI_RECV ? GANG_MULTI : 0) |
           (flags & FI_PEEK ? GANG_PEEK : 0) | (flags & FI_CLAIM ? GANG_CLAIM : 0) |
           (flags & FI_DISCARD ? GANG_DISCARD : 0);
}

static ssize_t send_it(struct fid_ep *fid, uint32_t flags, const struct iovec *parts, size_t count,
                       fi_addr_t to, uint64_t tag, uint64_t data, void *context)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    gang_operation operation = {
        .parts = parts,
        .count = count,
        .peer = to,
        .tag = tag,
        .data = data,
        .context = context,
        .flags = flags,
    };
    return gang_fabric_send(ep->object.domain->port, ep->object.number, &operation);
}

static ssize_t send_one(struct fid_ep *fid, uint32_t flags, const void *buf, size_t len,
                        fi_addr_t to, uint64_t tag, uint64_t data, void *context)
{
    struct iovec part = {.iov_base = (void *)buf, .iov_len = len};
    struct gang_ep *ep = (struct gang_ep *)fid;
    if (!(flags & GANG_INJECT))
        flags |= send_flags(ep, ep->send_flags);
    return send_it(fid, flags, &part, 1, to, tag, data, context);
}

/* An injected message has no completion, whatever is usual for the endpoint. */
static ssize_t inject_one(struct fid_ep *fid, uint32_t flags, const void *buf, size_t len,
                          fi_addr_t to, uint64_t tag, uint64_t data)
{
    return send_one(fid, flags | GANG_INJECT | GANG_SILENT, buf, len, to, tag, data, NULL);
}

static ssize_t receive_it(struct fid_ep *fid, uint32_t flags, const struct iovec *parts,
                          size_t count, fi_addr_t from, uint64_t tag, uint64_t ignore,
                          void *context)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    gang_operation operation = {
        .parts = parts,
        .count = count,
        .peer = from,
        .tag = tag,
        .ignore = ignore,
        .context = context,
        .flags = flags,
    };
    return gang_fabric_receive(ep->object.domain->port, ep->object.number, &operation);
}

static ssize_t receive_one(struct fid_ep *fid, uint32_t flags, void *buf, size_t len,
                           fi_addr_t from, uint64_t tag, uint64_t ignore, void *context)
{
    struct iovec part = {.iov_base = buf, .iov_len = len};
    struct gang_ep *ep = (struct gang_ep *)fid;
    flags |= receive_flags(ep->receive_flags);
    return receive_it(fid, flags, &part, 1, from, tag, ignore, context);
}

/* Without tags. */

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from,
                        void *context)
{
    (void)desc;
    return receive_one(fid, 0, buf, len, from, 0, 0, context);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t from, void *context)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    (void)desc;
    return receive_it(fid, receive_flags(ep->receive_flags), iov, count, from, 0, 0, context);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    return receive_it(fid, receive_flags(flags), msg->msg_iov, msg->iov_count, msg->addr, 0, 0,
                      msg->context);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to,
                        void *context)
{
    (void)desc;
    return send_one(fid, 0, buf, len, to, 0, 0, context);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t to, void *context)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    (void)desc;
    return send_it(fid, send_flags(ep, ep->send_flags), iov, count, to, 0, 0, context);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    return send_it(fid, send_flags((struct gang_ep *)fid, flags), msg->msg_iov, msg->iov_count,
                   msg->addr, 0, msg->data, msg->context);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t to)
{
    return inject_one(fid, 0, buf, len, to, 0, 0);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                            uint64_t data, fi_addr_t to, void *context)
{
    (void)desc;
    return send_one(fid, GANG_DATA, buf, len, to, 0, data, context);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                              fi_addr_t to)
{
    return inject_one(fid, GANG_DATA, buf, len, to, 0, data);
}

static struct fi_ops_msg msg_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = msg_recv,
    .recvv = msg_recvv,
    .recvmsg = msg_recvmsg,
    .send = msg_send,
    .sendv = msg_sendv,
    .sendmsg = msg_sendmsg,
    .inject = msg_inject,
    .senddata = msg_senddata,
    .injectdata = msg_injectdata,
};

/* With tags. */

static ssize_t tagged_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from,
                           uint64_t tag, uint64_t ignore, void *context)
{
    (void)desc;
    return receive_one(fid, GANG_TAGGED, buf, len, from, tag, ignore, context);
}

static ssize_t tagged_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t from, uint64_t tag, uint64_t ignore, void *context)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    (void)desc;
    return receive_it(fid, GANG_TAGGED | receive_flags(ep->receive_flags), iov, count, from, tag,
                      ignore, context);
}

static ssize_t tagged_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
    return receive_it(fid, GANG_TAGGED | receive_flags(flags), msg->msg_iov, msg->iov_count,
                      msg->addr, msg->tag, msg->ignore, msg->context);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                           fi_addr_t to, uint64_t tag, void *context)
{
    (void)desc;
    return send_one(fid, GANG_TAGGED, buf, len, to, tag, 0, context);
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t to, uint64_t tag, void *context)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    (void)desc;
    return send_it(fid, GANG_TAGGED | send_flags(ep, ep->send_flags), iov, count, to, tag, 0,
                   context);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
    return send_it(fid, GANG_TAGGED | send_flags((struct gang_ep *)fid, flags), msg->msg_iov,
                   msg->iov_count, msg->addr, msg->tag, msg->data, msg->context);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t to,
                             uint64_t tag)
{
    return inject_one(fid, GANG_TAGGED, buf, len, to, tag, 0);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                               uint64_t data, fi_addr_t to, uint64_t tag, void *context)
{
    (void)desc;
    return send_one(fid, GANG_TAGGED | GANG_DATA, buf, len, to, tag, data, context);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                                 fi_addr_t to, uint64_t tag)
{
    return inject_one(fid, GANG_TAGGED | GANG_DATA, buf, len, to, tag, data);
}

static struct fi_ops_tagged tagged_ops = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = tagged_recv,
    .recvv = tagged_recvv,
    .recvmsg = tagged_recvmsg,
    .send = tagged_send,
    .sendv = tagged_sendv,
    .sendmsg = tagged_sendmsg,
    .inject = tagged_inject,
    .senddata = tagged_senddata,
    .injectdata = tagged_injectdata,
};

/* The endpoint itself. */

static ssize_t ep_cancel(fid_t fid, void *context)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    return gang_fabric_cancel(ep->object.domain->port, ep->object.number, context);
}

static int ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    if (level != FI_OPT_ENDPOINT || optname != FI_OPT_MIN_MULTI_RECV)
        return -FI_ENOPROTOOPT;
    if (*optlen < sizeof ep->min_multi_recv)
        return -FI_ETOOSMALL;
    memcpy(optval, &ep->min_multi_recv, sizeof ep->min_multi_recv);
    *optlen = sizeof ep->min_multi_recv;
    return 0;
}

static int ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    if (level != FI_OPT_ENDPOINT || optname != FI_OPT_MIN_MULTI_RECV)
        return -FI_ENOPROTOOPT;
    if (optlen != sizeof ep->min_multi_recv)
        return -FI_EINVAL;
    memcpy(&ep->min_multi_recv, optval, sizeof ep->min_multi_recv);
    return (int)gang_fabric_set_min_shared(ep->object.domain->port, ep->object.number,
                                           ep->min_multi_recv);
}

static int no_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **tx_ep,
                     void *context)
{
    (void)sep, (void)index, (void)attr, (void)tx_ep, (void)context;
    return -FI_ENOSYS;
}

static int no_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
                     void *context)
{
    (void)sep, (void)index, (void)attr, (void)rx_ep, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_size_left(struct fid_ep *ep)
{
    (void)ep;
    return -FI_ENOSYS;
}

static struct fi_ops_ep ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = ep_cancel,
    .getopt = ep_getopt,
    .setopt = ep_setopt,
    .tx_ctx = no_tx_ctx,
    .rx_ctx = no_rx_ctx,
    .rx_size_left = no_size_left,
    .tx_size_left = no_size_left,
};

static int ep_getname(fid_t fid, void *addr, size_t *addrlen)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    char own[GANG_FABRIC_ADDRESS];
    int64_t result = gang_fabric_address(ep->object.domain->port, ep->object.number, own);
    if (result < 0)
        return (int)result;
    size_t room = *addrlen;
    *addrlen = sizeof own;
    memcpy(addr, own, room < sizeof own ? room : sizeof own);
    return room < sizeof own ? -FI_ETOOSMALL : 0;
}

static int no_setname(fid_t fid, void *addr, size_t addrlen)
{
    (void)fid, (void)addr, (void)addrlen;
    return -FI_ENOSYS;
}

static int no_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
    (void)ep, (void)addr, (void)addrlen;
    return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
{
    (void)ep, (void)addr, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int no_listen(struct fid_pep *pep)
{
    (void)pep;
    return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *ep, const void *param, size_t paramlen)
{
    (void)ep, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
{
    (void)pep, (void)handle, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *ep, uint64_t flags)
{
    (void)ep, (void)flags;
    return -FI_ENOSYS;
}

static int no_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc,
                   void *context)
{
    (void)ep, (void)addr, (void)flags, (void)mc, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops_cm cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = no_setname,
    .getname = ep_getname,
    .getpeer = no_getpeer,
    .connect = no_connect,
    .listen = no_listen,
    .accept = no_accept,
    .reject = no_reject,
    .shutdown = no_shutdown,
    .join = no_join,
};

static int ep_close(struct fid *fid)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    int result = gang_fi_release(&ep->object, GANG_ENDPOINT);
    if (result)
        return result;
    for (size_t i = 0; i < ep->bound_count; i++)
        atomic_fetch_sub(&ep->bound[i]->users, 1);
    free(ep);
    return 0;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    struct gang_object *object;
    uint32_t how = (flags & FI_TRANSMIT ? GANG_BIND_SENDS : 0) |
                   (flags & FI_RECV ? GANG_BIND_RECEIVES : 0) |
                   (flags & FI_SELECTIVE_COMPLETION ? GANG_BIND_SELECTIVE : 0);
    int kind;
    switch (bfid->fclass) {
    case FI_CLASS_EQ:
        return 0;
    case FI_CLASS_AV:
        object = &((struct gang_av *)bfid)->object;
        kind = GANG_VECTOR;
        break;
    case FI_CLASS_CQ:
        if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
            return -FI_EBADFLAGS;
        object = &((struct gang_cq *)bfid)->object;
        kind = GANG_QUEUE;
        break;
    case FI_CLASS_CNTR:
        object = &((struct gang_cntr *)bfid)->object;
        kind = GANG_COUNTER;
        break;
    default:
        return -FI_EINVAL;
    }
    if (object->domain != ep->object.domain)
        return -FI_EDOMAIN;
    if (ep->bound_count == sizeof ep->bound / sizeof ep->bound[0])
        return -FI_EINVAL;
    int64_t bound =
        gang_fabric_bind(ep->object.domain->port, ep->object.number, kind, object->number, how);
    if (bound < 0)
        return (int)bound;
    ep->bound[ep->bound_count++] = object;
    atomic_fetch_add(&object->users, 1);
    return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
    struct gang_ep *ep = (struct gang_ep *)fid;
    uint64_t *flags = arg;
    switch (command) {
    case FI_ENABLE:
        return (int)gang_fabric_enable(ep->object.domain->port, ep->object.number);
    case FI_GETOPSFLAG:
    case FI_SETOPSFLAG: {
        if (!(*flags & FI_TRANSMIT) == !(*flags & FI_RECV))
            return -FI_EINVAL;
        uint64_t *of = *flags & FI_TRANSMIT ? &ep->send_flags : &ep->receive_flags;
        if (command == FI_GETOPSFLAG)
            *flags = *of;
        else
            *of = *flags & ~(FI_TRANSMIT | FI_RECV);
        return 0;
    }
    default:
        return -FI_ENOSYS;
    }
}

static struct fi_ops ep_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = ep_close,
    .bind = ep_bind,
    .control = ep_control,
    .ops_open = gang_fi_no_ops,
};

int gang_fi_ep(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context)
{
    struct gang_dom *domain = (struct gang_dom *)fid;
    if (!info || !info->ep_attr || info->ep_attr->type != FI_EP_RDM)
        return -FI_EINVAL;
    struct gang_ep *ep = calloc(1, sizeof *ep);
    if (!ep)
        return -FI_ENOMEM;
    size_t sends = info->tx_attr && info->tx_attr->size ? info->tx_attr->size : gang_tx_attr.size;
    ep->min_multi_recv = 64;
    gang_endpoint_settings settings = {
        .min_shared = ep->min_multi_recv,
        .sends_max = sends,
        .is_directed = !!(info->caps & FI_DIRECTED_RECV),
        .names_source = !!(info->caps & FI_SOURCE),
    };
    int result =
        gang_fi_object(&ep->object, domain, gang_fabric_endpoint(domain->port, &settings));
    if (result) {
        free(ep);
        return result;
    }
    ep->send_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
    ep->receive_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
    ep->fid.fid.fclass = FI_CLASS_EP;
    ep->fid.fid.context = context;
    ep->fid.fid.ops = &ep_fi_ops;
    ep->fid.ops = &ep_ops;
    ep->fid.cm = &cm_ops;
    ep->fid.msg = &msg_ops;
    ep->fid.tagged = &tagged_ops;
    *out = &ep->fid;
    return 0;
}
