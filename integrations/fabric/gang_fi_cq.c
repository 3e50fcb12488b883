/* Completion queues and counters. */
#include "gang_fi.h"

/* The room's numbers are libfabric's. */
_Static_assert(FI_MSG == 1ULL << 1 && FI_TAGGED == 1ULL << 3 && FI_RECV == 1ULL << 10 &&
                   FI_SEND == 1ULL << 11 && FI_MULTI_RECV == 1ULL << 16 &&
                   FI_REMOTE_CQ_DATA == 1ULL << 17,
               "flags of completions");
_Static_assert(FI_EAVAIL == 259 && FI_ETRUNC == 265 && FI_ENOMSG == 42 && FI_ECANCELED == 125 &&
                   FI_ENOTCONN == 107 && FI_EAGAIN == 11 && FI_EHOSTUNREACH == 113,
               "errors");

#define AT_ONCE 16
#define QUEUE_MIN 1024

static size_t write_entry(enum fi_cq_format format, void *to, const gang_completion *from)
{
    switch (format) {
    case FI_CQ_FORMAT_TAGGED: {
        struct fi_cq_tagged_entry *entry = to;
        entry->tag = from->tag;
    }
        __attribute__((fallthrough));
    case FI_CQ_FORMAT_DATA: {
        struct fi_cq_data_entry *entry = to;
        entry->buf = from->buffer;
        entry->data = from->data;
    }
        __attribute__((fallthrough));
    case FI_CQ_FORMAT_MSG: {
        struct fi_cq_msg_entry *entry = to;
        entry->flags = from->flags;
        entry->len = from->length;
    }
        __attribute__((fallthrough));
    default: {
        struct fi_cq_entry *entry = to;
        entry->op_context = from->context;
    }
    }
    return format == FI_CQ_FORMAT_TAGGED ? sizeof(struct fi_cq_tagged_entry)
           : format == FI_CQ_FORMAT_DATA ? sizeof(struct fi_cq_data_entry)
           : format == FI_CQ_FORMAT_MSG  ? sizeof(struct fi_cq_msg_entry)
                                         : sizeof(struct fi_cq_entry);
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *src_addr)
{
    struct gang_cq *cq = (struct gang_cq *)fid;
    gang_completion read[AT_ONCE];
    char *to = buf;
    int64_t got = gang_fabric_read(cq->object.domain->port, cq->object.number, read,
                                   count < AT_ONCE ? count : AT_ONCE);
    for (int64_t i = 0; i < got; i++) {
        to += write_entry(cq->format, to, &read[i]);
        if (src_addr)
            src_addr[i] = read[i].source;
    }
    return got;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
    return cq_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
    struct gang_cq *cq = (struct gang_cq *)fid;
    gang_completion read;
    (void)flags;
    int64_t got = gang_fabric_read_error(cq->object.domain->port, cq->object.number, &read);
    if (got < 0)
        return got;
    buf->op_context = read.context;
    buf->flags = read.flags;
    buf->len = read.length;
    buf->buf = read.buffer;
    buf->data = read.data;
    buf->tag = read.tag;
    buf->olen = read.missing;
    buf->err = read.error;
    buf->prov_errno = read.error;
    /* Since version 1.5 a program may bring a buffer for more, of which there is none. */
    buf->err_data_size = 0;
    return 1;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *src_addr,
                            const void *cond, int timeout)
{
    struct gang_cq *cq = (struct gang_cq *)fid;
    (void)cond;
    if (!cq->may_wait)
        return -FI_ENOSYS;
    int64_t waited = gang_fabric_wait(cq->object.domain->port, cq->object.number, timeout);
    return waited < 0 ? waited : cq_readfrom(fid, buf, count, src_addr);
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
    return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
    struct gang_cq *cq = (struct gang_cq *)fid;
    return (int)gang_fabric_signal(cq->object.domain->port, cq->object.number);
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno, const void *err_data, char *buf,
                               size_t len)
{
    (void)fid, (void)err_data;
    const char *text = prov_errno == FI_ENOTCONN    ? "the peer has ended, or there is no way to it"
                       : prov_errno == FI_ETRUNC    ? "the message is longer than its buffer"
                       : prov_errno == FI_ENOMSG    ? "no such message has come"
                       : prov_errno == FI_ECANCELED ? "cancelled"
                                                    : "the message could not be copied";
    if (buf && len) {
        strncpy(buf, text, len - 1);
        buf[len - 1] = 0;
    }
    return buf && len ? buf : text;
}

static int cq_close(struct fid *fid)
{
    struct gang_cq *cq = (struct gang_cq *)fid;
    int result = gang_fi_release(&cq->object, GANG_QUEUE);
    if (!result)
        free(cq);
    return result;
}

static struct fi_ops cq_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = cq_close,
    .bind = gang_fi_no_bind,
    .control = gang_fi_no_control,
    .ops_open = gang_fi_no_ops,
};

static struct fi_ops_cq cq_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = cq_read,
    .readfrom = cq_readfrom,
    .readerr = cq_readerr,
    .sread = cq_sread,
    .sreadfrom = cq_sreadfrom,
    .signal = cq_signal,
    .strerror = cq_strerror,
};

int gang_fi_cq(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
    struct gang_dom *domain = (struct gang_dom *)fid;
    if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
        return -FI_ENOSYS;
    struct gang_cq *cq = calloc(1, sizeof *cq);
    if (!cq)
        return -FI_ENOMEM;
    size_t capacity = attr->size > QUEUE_MIN ? attr->size : QUEUE_MIN;
    int result = gang_fi_object(&cq->object, domain, gang_fabric_queue(domain->port, capacity));
    if (result) {
        free(cq);
        return result;
    }
    cq->format = attr->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attr->format;
    cq->may_wait = attr->wait_obj == FI_WAIT_UNSPEC;
    cq->fid.fid.fclass = FI_CLASS_CQ;
    cq->fid.fid.context = context;
    cq->fid.fid.ops = &cq_fi_ops;
    cq->fid.ops = &cq_ops;
    *out = &cq->fid;
    return 0;
}

/* Counters. */

static uint64_t count(struct fid_cntr *fid, bool of_errors)
{
    struct gang_cntr *cntr = (struct gang_cntr *)fid;
    uint64_t value = 0, errors = 0;
    gang_fabric_count(cntr->object.domain->port, cntr->object.number, &value, &errors);
    return of_errors ? errors : value;
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
    return count(fid, false);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
    return count(fid, true);
}

static int set_count(struct fid_cntr *fid, int of_errors, int adds, uint64_t value)
{
    struct gang_cntr *cntr = (struct gang_cntr *)fid;
    return (int)gang_fabric_set_count(cntr->object.domain->port, cntr->object.number, of_errors,
                                      adds, value);
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
    return set_count(fid, 0, 1, value);
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
    return set_count(fid, 0, 0, value);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
    return set_count(fid, 1, 1, value);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
    return set_count(fid, 1, 0, value);
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
    struct gang_cntr *cntr = (struct gang_cntr *)fid;
    int result = (int)gang_fabric_wait_count(cntr->object.domain->port, cntr->object.number,
                                             threshold, timeout);
    return result == -FI_EAGAIN ? -FI_ETIMEDOUT : result;
}

static int cntr_close(struct fid *fid)
{
    struct gang_cntr *cntr = (struct gang_cntr *)fid;
    int result = gang_fi_release(&cntr->object, GANG_COUNTER);
    if (!result)
        free(cntr);
    return result;
}

static struct fi_ops cntr_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = cntr_close,
    .bind = gang_fi_no_bind,
    .control = gang_fi_no_control,
    .ops_open = gang_fi_no_ops,
};

static struct fi_ops_cntr cntr_ops = {
    .size = sizeof(struct fi_ops_cntr),
    .read = cntr_read,
    .readerr = cntr_readerr,
    .add = cntr_add,
    .set = cntr_set,
    .wait = cntr_wait,
    .adderr = cntr_adderr,
    .seterr = cntr_seterr,
};

int gang_fi_cntr(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out,
                 void *context)
{
    struct gang_dom *domain = (struct gang_dom *)fid;
    if (attr && attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
        return -FI_ENOSYS;
    struct gang_cntr *cntr = calloc(1, sizeof *cntr);
    if (!cntr)
        return -FI_ENOMEM;
    int result = gang_fi_object(&cntr->object, domain, gang_fabric_counter(domain->port));
    if (result) {
        free(cntr);
        return result;
    }
    cntr->fid.fid.fclass = FI_CLASS_CNTR;
    cntr->fid.fid.context = context;
    cntr->fid.fid.ops = &cntr_fi_ops;
    cntr->fid.ops = &cntr_ops;
    *out = &cntr->fid;
    return 0;
}
