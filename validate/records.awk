# Joins the events of each packet sent before `until` in an ns-2 trace (tagged form) to one line:
#     FLOW SEQUENCE SENT_S r|d TIME_S
{
    flow = $12
    key = flow " " $20
    if ($1 == "+") {
        if ($2 < until) sent[key] = $2
    } else if (key in sent) {
        print key, sent[key], $1, $2
        delete sent[key]
    }
}
