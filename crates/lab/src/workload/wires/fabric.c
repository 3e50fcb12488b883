/* Tagged messages of libfabric, as MPIs send them. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

static struct fid_ep *endpoint;
static struct fid_cq *completions;
static fi_addr_t peer;
static size_t inject_size;
static struct {
  struct fi_context2 context;
  int is_done;
} operations[WINDOW];

static void must(const char *call, int result) {
  if (result)
    die("%s: %s: %s", name, call, fi_strerror(-result));
}

static void wire_open(void) {
  struct fi_info *hints = fi_allocinfo(), *info = 0;
  hints->caps = FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->fabric_attr->prov_name = strdup(name);
  int is_tcp = strstr(name, "tcp") != 0;
  must("fi_getinfo", fi_getinfo(FI_VERSION(1, 14), is_tcp ? "127.0.0.1" : 0, 0,
                                is_tcp ? FI_SOURCE : 0, hints, &info));
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *addresses;
  must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, 0));
  must("fi_domain", fi_domain(fabric, info, &domain, 0));
  struct fi_cq_attr of_completions = {.size = 1024, .format = FI_CQ_FORMAT_TAGGED};
  must("fi_cq_open", fi_cq_open(domain, &of_completions, &completions, 0));
  struct fi_av_attr of_addresses = {.type = FI_AV_TABLE, .count = 2};
  must("fi_av_open", fi_av_open(domain, &of_addresses, &addresses, 0));
  must("fi_endpoint", fi_endpoint(domain, info, &endpoint, 0));
  must("fi_ep_bind", fi_ep_bind(endpoint, &addresses->fid, 0));
  must("fi_ep_bind", fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV));
  must("fi_enable", fi_enable(endpoint));
  inject_size = info->tx_attr->inject_size;
  char own[4096];
  size_t length = sizeof own;
  must("fi_getname", fi_getname(&endpoint->fid, own, &length));
  show_address(own, length);
  if (fi_av_insert(addresses, other_address(), 1, &peer, 0, 0) != 1)
    die("%s: the other's address is not taken", name);
}

static void progress(void) {
  struct fi_cq_tagged_entry entries[WINDOW];
  ssize_t count = fi_cq_read(completions, entries, WINDOW);
  if (count == -FI_EAVAIL) {
    struct fi_cq_err_entry error = {0};
    fi_cq_readerr(completions, &error, 0);
    die("%s: an operation failed: %s", name, fi_strerror(error.err));
  }
  if (count < 0 && count != -FI_EAGAIN)
    die("%s: fi_cq_read: %s", name, fi_strerror((int)-count));
  for (ssize_t at = 0; at < count; at++)
    for (int of = 0; of < WINDOW; of++)
      if (entries[at].op_context == &operations[of].context)
        operations[of].is_done = 1;
}

static void post(int is_send, void *buffer, size_t size, int at) {
  int is_short = is_send && size <= inject_size;
  operations[at].is_done = is_short;
  void *context = &operations[at].context;
  ssize_t result;
  for (;;) {
    if (is_short)
      result = fi_tinject(endpoint, buffer, size, peer, 1);
    else if (is_send)
      result = fi_tsend(endpoint, buffer, size, 0, peer, 1, context);
    else
      result = fi_trecv(endpoint, buffer, size, 0, peer, 1, 0, context);
    if (result != -FI_EAGAIN)
      break;
    progress();
  }
  must(is_send ? "send" : "receive", (int)result);
}

static int is_done(int at) { return operations[at].is_done; }
