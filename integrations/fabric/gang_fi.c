/* libgang-fi.so: the libfabric provider `gang`. docs/net.md says what it offers.
 *
 * This is the surface alone, in C, against libfabric's own headers: its objects are structures with
 * tables of functions, which inline functions of the headers call. Messages themselves are the
 * business of the room crates/fabric, behind gang_fabric.h.
 *
 * Nothing is linked with libfabric: a program may have another one than the system's. The library
 * that calls fi_prov_ini says its version, and has what else is needed of it. Its version becomes
 * the provider's, so that each libfabric takes it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include <rdma/providers/fi_log.h>

#include "gang_fi.h"

/* Functions of the libfabric that has loaded us. */
static struct {
    uint32_t (*version)(void);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    void (*freeinfo)(struct fi_info *);
    int (*log_enabled)(const struct fi_provider *, enum fi_log_level, enum fi_log_subsys);
    void (*log)(const struct fi_provider *, enum fi_log_level, enum fi_log_subsys, const char *,
                int, const char *, ...);
} lib;

static int fabric_close(struct fid *fid)
{
    struct gang_fabric *fabric = (struct gang_fabric *)fid;
    if (atomic_load(&fabric->users) > 0)
        return -FI_EBUSY;
    free(fabric);
    return 0;
}

int gang_fi_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return -FI_ENOSYS;
}

int gang_fi_no_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return -FI_ENOSYS;
}

int gang_fi_no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static int no_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
                         void *context)
{
    (void)fabric, (void)info, (void)pep, (void)context;
    return -FI_ENOSYS;
}

static int no_wait(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **wait)
{
    (void)fabric, (void)attr, (void)wait;
    return -FI_ENOSYS;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    (void)fabric, (void)fids, (void)count;
    return -FI_ENOSYS;
}

static struct fi_ops fabric_fi_ops = {
    .size = sizeof(struct fi_ops),
    .close = fabric_close,
    .bind = gang_fi_no_bind,
    .control = gang_fi_no_control,
    .ops_open = gang_fi_no_ops,
};

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = gang_fi_domain,
    .passive_ep = no_passive_ep,
    .eq_open = gang_fi_eq,
    .wait_open = no_wait,
    .trywait = trywait,
};

static int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
    if (attr->name && strcmp(attr->name, "gang"))
        return -FI_ENODATA;
    struct gang_fabric *fabric = calloc(1, sizeof *fabric);
    if (!fabric)
        return -FI_ENOMEM;
    fabric->fid.fid.fclass = FI_CLASS_FABRIC;
    fabric->fid.fid.context = context;
    fabric->fid.fid.ops = &fabric_fi_ops;
    fabric->fid.ops = &fabric_ops;
    fabric->fid.api_version = attr->api_version;
    *out = &fabric->fid;
    return 0;
}

static void cleanup(void)
{
}

static struct fi_provider provider = {
    .version = FI_VERSION(0, 1),
    .name = "gang",
    .getinfo = gang_fi_getinfo,
    .fabric = fabric_open,
    .cleanup = cleanup,
};

struct fi_info *gang_fi_new_info(void)
{
    return lib.dupinfo(NULL);
}

void gang_fi_free_info(struct fi_info *info)
{
    lib.freeinfo(info);
}

void gang_fi_say(int how, const char *text)
{
    enum fi_log_level level = how == GANG_DEBUG  ? FI_LOG_DEBUG
                              : how == GANG_WARN ? FI_LOG_WARN
                                                 : FI_LOG_INFO;
    if (lib.log && lib.log_enabled && lib.log_enabled(&provider, level, FI_LOG_EP_CTRL)) {
        int saved = errno;
        lib.log(&provider, level, FI_LOG_EP_CTRL, __func__, __LINE__, "%s\n", text);
        errno = saved;
    }
}

/* A pointer to a function, in the only way that C permits. */
static void look_up(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

FI_EXT_INI
{
    Dl_info caller;
    void *library = NULL;
    if (dladdr(__builtin_extract_return_addr(__builtin_return_address(0)), &caller))
        library = dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        library = RTLD_DEFAULT;
    look_up(library, "fi_version", &lib.version);
    look_up(library, "fi_dupinfo", &lib.dupinfo);
    look_up(library, "fi_freeinfo", &lib.freeinfo);
    look_up(library, "fi_log_enabled", &lib.log_enabled);
    look_up(library, "fi_log", &lib.log);
    if (!lib.version || !lib.dupinfo || !lib.freeinfo)
        return NULL;
    provider.fi_version = lib.version();
    return &provider;
}
