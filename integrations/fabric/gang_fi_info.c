/* The provider's offer, and whether a program wants something else. */
#include <stdio.h>

#include "gang_fi.h"

#define OFFERED_CAPS                                                                              \
    (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV |      \
     FI_LOCAL_COMM | FI_REMOTE_COMM)
#define TX_CAPS (FI_MSG | FI_TAGGED | FI_SEND)
#define RX_CAPS (FI_MSG | FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV)
#define DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define TX_FLAGS                                                                                  \
    (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)
#define RX_FLAGS (FI_COMPLETION | FI_MULTI_RECV)
/* Sends come in order. Orders with remote memory hold, since nothing reaches that. */
#define ORDER (FI_ORDER_STRICT | FI_ORDER_DATA | 0xffULL << 32)
/* Of the protocol, and of addresses. */
#define PROTOCOL (FI_PROV_SPECIFIC | 1)
#define SENDS 1024
#define RECEIVES 1024
/* All bits of a tag are the program's, each in a field of its own. */
#define TAG_GENERIC 0xaaaaaaaaaaaaaaaaULL
#define MESSAGE_MAX ((size_t)1 << 40)

const struct fi_tx_attr gang_tx_attr = {
    .caps = TX_CAPS,
    .msg_order = ORDER,
    .comp_order = FI_ORDER_NONE,
    .inject_size = GANG_FABRIC_EAGER,
    .size = SENDS,
    .iov_limit = GANG_FABRIC_PARTS,
};

const struct fi_rx_attr gang_rx_attr = {
    .caps = RX_CAPS,
    .msg_order = ORDER,
    .comp_order = FI_ORDER_NONE,
    .size = RECEIVES,
    .iov_limit = GANG_FABRIC_PARTS,
};

static bool is_within(uint64_t wanted, uint64_t offered)
{
    return !(wanted & ~offered);
}

/* Why something cannot be had, or null. */

static const char *misfit_domain(const struct fi_domain_attr *it)
{
    return it->name && strcmp(it->name, "gang")            ? "a domain of another name"
           : !is_within(it->caps, DOMAIN_CAPS)             ? "capabilities of a domain"
           : it->control_progress == FI_PROGRESS_AUTO ||
                   it->data_progress == FI_PROGRESS_AUTO   ? "automatic progress"
           : it->cq_data_size > sizeof(uint64_t)           ? "longer data of completions"
           : it->auth_key_size                             ? "an authorization key"
                                                           : NULL;
}

static const char *misfit_ep(const struct fi_ep_attr *it)
{
    return it->type != FI_EP_UNSPEC && it->type != FI_EP_RDM ? "another type of endpoint"
           : it->protocol != FI_PROTO_UNSPEC && it->protocol != PROTOCOL ? "another protocol"
           : it->max_msg_size > MESSAGE_MAX                  ? "longer messages"
           : it->msg_prefix_size                             ? "a prefix of messages"
           : it->tx_ctx_cnt > 1 || it->rx_ctx_cnt > 1        ? "several contexts"
           : it->auth_key_size                               ? "an authorization key"
                                                             : NULL;
}

static const char *misfit_tx(const struct fi_tx_attr *it)
{
    return !is_within(it->caps, OFFERED_CAPS)        ? "capabilities of sends"
           : !is_within(it->op_flags, TX_FLAGS)      ? "flags of sends"
           : !is_within(it->msg_order, ORDER)        ? "an order of sends"
           : it->comp_order                          ? "an order of completions"
           : it->inject_size > GANG_FABRIC_EAGER     ? "longer injected messages"
           : it->size > SENDS                        ? "more sends at once"
           : it->iov_limit > GANG_FABRIC_PARTS || it->rma_iov_limit ? "more parts of a message"
                                                     : NULL;
}

static const char *misfit_rx(const struct fi_rx_attr *it)
{
    return !is_within(it->caps, OFFERED_CAPS)        ? "capabilities of receives"
           : !is_within(it->op_flags, RX_FLAGS)      ? "flags of receives"
           : !is_within(it->msg_order, ORDER)        ? "an order of receives"
           : it->comp_order                          ? "an order of completions"
           : it->size > RECEIVES                     ? "more receives at once"
           : it->iov_limit > GANG_FABRIC_PARTS       ? "more parts of a message"
                                                     : NULL;
}

static const char *misfit(const struct fi_info *it)
{
    const char *why = NULL;
    if (!is_within(it->caps, OFFERED_CAPS))
        return "capabilities";
    if (it->addr_format && it->addr_format != PROTOCOL)
        return "another format of addresses";
    if (it->fabric_attr && it->fabric_attr->name && strcmp(it->fabric_attr->name, "gang"))
        return "a fabric of another name";
    if (it->domain_attr)
        why = misfit_domain(it->domain_attr);
    if (!why && it->ep_attr)
        why = misfit_ep(it->ep_attr);
    if (!why && it->tx_attr)
        why = misfit_tx(it->tx_attr);
    if (!why && it->rx_attr)
        why = misfit_rx(it->rx_attr);
    return why;
}

/* Capabilities that a program asks for; both directions, and all kinds, where it does not say. */
static uint64_t caps(const struct fi_info *hints)
{
    uint64_t wanted = hints ? hints->caps : 0;
    if (!wanted)
        return OFFERED_CAPS;
    if (!(wanted & (FI_MSG | FI_TAGGED)))
        wanted |= FI_MSG | FI_TAGGED;
    if (!(wanted & (FI_SEND | FI_RECV)))
        wanted |= FI_SEND | FI_RECV;
    return wanted | DOMAIN_CAPS;
}

int gang_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **out)
{
    /* Addresses are handed about by the programs: there is no name by which to find one. */
    if ((node || service) && !(flags & FI_SOURCE))
        return -FI_ENODATA;
    const char *why = hints ? misfit(hints) : NULL;
    if (why) {
        char text[200];
        snprintf(text, sizeof text, "not there, but asked for: %s (capabilities %#llx)", why,
                 (unsigned long long)hints->caps);
        gang_fi_say(GANG_DEBUG, text);
        return -FI_ENODATA;
    }
    struct fi_info *info = gang_fi_new_info();
    if (!info)
        return -FI_ENOMEM;
    info->caps = caps(hints);
    info->addr_format = PROTOCOL;
    *info->tx_attr = gang_tx_attr;
    *info->rx_attr = gang_rx_attr;
    info->tx_attr->caps &= info->caps;
    info->rx_attr->caps &= info->caps;
    if (hints && hints->tx_attr)
        info->tx_attr->op_flags = hints->tx_attr->op_flags;
    if (hints && hints->rx_attr)
        info->rx_attr->op_flags = hints->rx_attr->op_flags;
    struct fi_ep_attr *ep = info->ep_attr;
    ep->type = FI_EP_RDM;
    ep->protocol = PROTOCOL;
    ep->protocol_version = 1;
    ep->max_msg_size = MESSAGE_MAX;
    ep->mem_tag_format = TAG_GENERIC;
    ep->tx_ctx_cnt = ep->rx_ctx_cnt = 1;
    struct fi_domain_attr *domain = info->domain_attr;
    const struct fi_domain_attr *asked = hints ? hints->domain_attr : NULL;
    domain->threading = FI_THREAD_SAFE;
    domain->control_progress = domain->data_progress = FI_PROGRESS_MANUAL;
    domain->resource_mgmt = FI_RM_ENABLED;
    domain->av_type = asked && asked->av_type ? asked->av_type : FI_AV_UNSPEC;
    /* Memory needs no registration. Older programs have one word for each of two modes. */
    domain->mr_mode = FI_VERSION_GE(version, FI_VERSION(1, 5)) ? 0
                      : asked && asked->mr_mode                ? asked->mr_mode
                                                               : (int)FI_MR_SCALABLE;
    domain->mr_key_size = sizeof(uint64_t);
    domain->cq_data_size = sizeof(uint64_t);
    domain->cq_cnt = domain->ep_cnt = domain->cntr_cnt = 256;
    domain->tx_ctx_cnt = domain->rx_ctx_cnt = 256;
    domain->max_ep_tx_ctx = domain->max_ep_rx_ctx = 1;
    domain->mr_iov_limit = 1;
    domain->mr_cnt = 65536;
    domain->caps = DOMAIN_CAPS;
    if (asked && asked->threading)
        domain->threading = asked->threading;
    domain->name = strdup("gang");
    info->fabric_attr->name = strdup("gang");
    info->fabric_attr->prov_version = FI_VERSION(0, 1);
    info->fabric_attr->api_version = version;
    if (hints && hints->dest_addr && hints->dest_addrlen == GANG_FABRIC_ADDRESS) {
        info->dest_addr = malloc(GANG_FABRIC_ADDRESS);
        if (info->dest_addr) {
            memcpy(info->dest_addr, hints->dest_addr, GANG_FABRIC_ADDRESS);
            info->dest_addrlen = GANG_FABRIC_ADDRESS;
        }
    }
    if (!domain->name || !info->fabric_attr->name) {
        gang_fi_free_info(info);
        return -FI_ENOMEM;
    }
    *out = info;
    return 0;
}
