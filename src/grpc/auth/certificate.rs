//! Callers by client certificate: the name in it.

use x509_parser::{
    pem::parse_x509_pem,
    prelude::{FromDer as _, GeneralName, X509Certificate},
};

use super::is_usable_name;

/// Returns the name that identifies a certificate (DER): its first URI, else its first DNS name,
/// else its first email address, else its common name. `None` if it has none of them, or one too
/// long or too odd to be a tenant's.
pub(super) fn certificate_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let alternatives = alternatives.map_or(&[][..], |extension| &extension.value.general_names);
    let first =
        |wanted: fn(&GeneralName<'_>) -> Option<String>| alternatives.iter().find_map(wanted);
    let name = first(|name| {
        if let GeneralName::URI(uri) = name {
            Some((*uri).to_owned())
        } else {
            None
        }
    })
    .or_else(|| {
        first(|name| {
            if let GeneralName::DNSName(dns) = name {
                Some((*dns).to_owned())
            } else {
                None
            }
        })
    })
    .or_else(|| {
        first(|name| {
            if let GeneralName::RFC822Name(at) = name {
                Some((*at).to_owned())
            } else {
                None
            }
        })
    })
    .or_else(|| {
        certificate
            .subject()
            .iter_common_name()
            .next()?
            .as_str()
            .ok()
            .map(str::to_owned)
    })?;
    is_usable_name(&name).then_some(name)
}

/// Returns the first DNS name of the first certificate of a chain (PEM) : the name by which its
/// server is verified, whatever its address.
pub(in crate::grpc) fn dns_name(chain: &[u8]) -> Option<String> {
    let (_, pem) = parse_x509_pem(chain).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten()?;
    alternatives.value.general_names.iter().find_map(|name| {
        if let GeneralName::DNSName(dns) = name {
            // Any name that the pattern covers.
            Some(dns.replace('*', "replica"))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_identified_by_uri_then_dns_then_email_then_common_name() {
        use rcgen::{CertificateParams, DnType, KeyPair, SanType};
        let name = |names: &[&str], common: Option<&str>| {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(common) = common {
                params.distinguished_name.push(DnType::CommonName, common);
            }
            params.subject_alt_names = names
                .iter()
                .map(|name| match name.split_once(':').unwrap() {
                    ("uri", _) => SanType::URI(format!("spiffe://{name}").try_into().unwrap()),
                    ("dns", dns) => SanType::DnsName(dns.try_into().unwrap()),
                    (_, mail) => SanType::Rfc822Name(mail.try_into().unwrap()),
                })
                .collect();
            certificate_name(
                params
                    .self_signed(&KeyPair::generate().unwrap())
                    .unwrap()
                    .der(),
            )
        };
        assert_eq!(
            name(&["mail:a@b.c", "dns:one.example", "uri:x/y"], Some("n")).unwrap(),
            "spiffe://uri:x/y"
        );
        assert_eq!(
            name(
                &["mail:a@b.c", "dns:one.example", "dns:two.example"],
                Some("n")
            )
            .unwrap(),
            "one.example"
        );
        assert_eq!(name(&["mail:a@b.c"], Some("n")).unwrap(), "a@b.c");
        assert_eq!(name(&[], Some("n")).unwrap(), "n");
        assert_eq!(name(&[], None), None);
        assert_eq!(name(&[], Some(&"n".repeat(300))), None);
    }
}
